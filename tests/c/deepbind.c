/* A library opened with RTLD_DEEPBIND, as PHP opens its extensions, finds libc's malloc first. Blocks go both ways between it
 * and the program. argv[1] is its name; it lies beside this program. With argv[2] a sandbox lets no page of libc be made writable. */
#define _GNU_SOURCE
#include "seccomp.h"
#include <gnu/libc-version.h>
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>

static const char *name;

static void *blocks_go_both_ways(void *seed) {
    /* The loader replaces $ORIGIN by the folder of whoever calls it: that must still be this program. */
    char path[4096];
    snprintf(path, sizeof path, "$ORIGIN/%s", name);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    CHECK(library != NULL, "dlopen: %s", dlerror());
    void *(*allocate)(size_t) = (void *(*)(size_t))dlsym(library, "deep_allocate");
    void *(*grow)(void *, size_t) = (void *(*)(void *, size_t))dlsym(library, "deep_grow");
    void (*release)(void *) = (void (*)(void *))dlsym(library, "deep_free");
    char *(*copy)(const char *) = (char *(*)(const char *))dlsym(library, "deep_copy");
    size_t (*usable)(void *) = (size_t (*)(void *))dlsym(library, "deep_usable");
    uint64_t random = (uintptr_t)seed + 1;
    for (int step = 0; step < 3000; step++) {
        size_t n = random_size(&random, 1, 400000);
        unsigned char *theirs = allocate(n), *ours = malloc(n);
        CHECK(usable(ours) == malloc_usable_size(ours) && usable(theirs) == malloc_usable_size(theirs),
              "the two have different usable sizes of the same blocks of %zu", n);
        fill(ours, n, n);
        ours = grow(ours, 2 * n);
        CHECK_PATTERN(ours, n, n, n);
        release(ours);
        free(theirs);
        char *text = copy("both ways");
        CHECK(strcmp(text, "both ways") == 0, "the copy is wrong");
        free(text);
    }
    return NULL;
}

/* Refuses mprotect where libc begins, with its table of symbols. */
static void refuse_libc(void) {
    Dl_info libc;
    CHECK(dladdr((void *)gnu_get_libc_version, &libc) != 0, "libc is nowhere");
    uint64_t start = (uintptr_t)libc.dli_fbase, end = start + 128 * KIB;
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 6),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0]) + 4),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, start >> 32, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, (uint32_t)start, 0, 2),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, (uint32_t)end > (uint32_t)start ? (uint32_t)end : UINT32_MAX, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    install_filter(filter, COUNT_OF(filter));
}

int main(int argc, char **argv) {
    CHECK(argc == 2 || argc == 3, "usage: deepbind NAME [refuse]");
    name = argv[1];
    if (argc == 3) refuse_libc();
    CHECK(dlopen("/nowhere/at/all.so", RTLD_NOW | RTLD_DEEPBIND) == NULL && dlerror() != NULL, "what is not there was opened");
    CHECK(dlopen(NULL, RTLD_NOW) != NULL, "the program itself: %s", dlerror());
    pthread_t thread[4];
    for (uintptr_t i = 0; i < 4; i++) pthread_create(&thread[i], NULL, blocks_go_both_ways, (void *)i);
    for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
    blocks_go_both_ways((void *)9);
    return 0;
}
