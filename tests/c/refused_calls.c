/* A sandbox that refuses madvise, membarrier and mremap: everything still works, in this process and from the start. */
#include "seccomp.h"
#include <pthread.h>

#define REFUSE(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)

static void install(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        REFUSE(SYS_madvise), REFUSE(SYS_membarrier), REFUSE(SYS_mremap), REFUSE(SYS_getcpu),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    install_filter(filter, COUNT_OF(filter));
}

static void *work(void *argument) {
    uint64_t random = (uintptr_t)argument + 1;
    enum { HELD = 200 };
    unsigned char *held[HELD] = {0};
    size_t size[HELD] = {0};
    for (int step = 0; step < 20000; step++) {
        size_t i = next_random(&random) % HELD, n = random_size(&random, 1, step % 100 ? 20000 : 8 * MIB);
        if (held[i]) CHECK_PATTERN(held[i], size[i], size[i], i);
        if (step % 3 == 0 && held[i]) {
            held[i] = realloc(held[i], n);
            CHECK(held[i] != NULL, "realloc to %zu failed", n);
            CHECK_PATTERN(held[i], size[i], n < size[i] ? n : size[i], i);
        } else {
            free(held[i]);
            held[i] = step % 3 == 1 ? calloc(1, n) : malloc(n);
            CHECK(held[i] != NULL, "no memory for %zu", n);
            if (step % 3 == 1) CHECK(first_nonzero(held[i], n) == SIZE_MAX, "calloc(%zu) is not zero", n);
        }
        size[i] = n;
        fill(held[i], n, i);
    }
    for (size_t i = 0; i < HELD; i++) free(held[i]);
    malloc_trim(0);
    return NULL;
}
static void everything(void) {
    work((void *)1);
    pthread_t thread[2];
    for (uintptr_t i = 0; i < 2; i++) pthread_create(&thread[i], NULL, work, (void *)i);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
}

int main(int argc, char **argv) {
    if (argc == 1) {
        work(NULL);
        install();
        everything();
        char *arguments[] = {argv[0], "again", NULL};
        execv(argv[0], arguments);
        CHECK(false, "exec: errno %d", errno);
    }
    everything();
    return 0;
}
