// Works one allocator hard for a second, under LD_PRELOAD; `witness LIBRARY` exits with 0 when all is well.
// Every function of malloc's family must come from LIBRARY, and LIBRARY must be in /proc/self/maps.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 4
#define ROUNDS 200000
#define SLOTS 512

#define CHECK(condition, what)                                    \
    do {                                                          \
        if (!(condition)) {                                       \
            fprintf(stderr, "%s (line %d)\n", what, __LINE__);    \
            _exit(1);                                             \
        }                                                         \
    } while (0)

typedef struct {
    unsigned char *start;
    size_t size;
} block;

// Blocks that one thread leaves here are freed by the next.
static block shared[SLOTS];
static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static size_t size_of_next(uint64_t *state) {
    uint64_t number = next(state);
    switch (number % 64) {
    case 0: return 1 + (number >> 8) % (1 << 20);
    case 1 ... 7: return 1 + (number >> 8) % 32768;
    default: return 1 + (number >> 8) % 512;
    }
}

static unsigned char mark(const void *start, size_t size) {
    return (unsigned char)(((uintptr_t)start >> 4) * 31 + size);
}

static void fill(block *it) {
    it->start[0] = it->start[it->size - 1] = mark(it->start, it->size);
    if (it->size > 8) memset(it->start + 1, 0x5a, it->size < 64 ? it->size - 2 : 62);
}

static void check(const block *it) {
    unsigned char expected = mark(it->start, it->size);
    CHECK(it->start[0] == expected && it->start[it->size - 1] == expected, "a block lost its contents");
}

static void *aligned_block(uint64_t *state, size_t size) {
    size_t alignment = (size_t)16 << next(state) % 12;
    void *start = NULL;
    switch (next(state) % 5) {
    case 0: CHECK(posix_memalign(&start, alignment, size) == 0, "posix_memalign failed"); break;
    case 1: start = aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment); break;
    case 2: start = memalign(alignment, size); break;
    case 3: start = valloc(size), alignment = 4096; break;
    default: start = pvalloc(size), alignment = 4096; break;
    }
    CHECK(start != NULL && (uintptr_t)start % alignment == 0, "a block is not aligned");
    return start;
}

static void make(block *it, uint64_t *state) {
    it->size = size_of_next(state);
    switch (next(state) % 16) {
    case 0: it->start = aligned_block(state, it->size); break;
    case 1 ... 4:
        it->start = calloc(1, it->size);
        CHECK(it->start != NULL, "calloc failed");
        for (size_t at = 0; at < it->size; at++) CHECK(it->start[at] == 0, "calloc's block is not zero");
        break;
    default: it->start = malloc(it->size); break;
    }
    CHECK(it->start != NULL && (uintptr_t)it->start % 8 == 0, "no block");
    CHECK(malloc_usable_size(it->start) >= it->size, "a block is smaller than asked for");
    fill(it);
}

static void grow_or_shrink(block *it, uint64_t *state) {
    unsigned char first = it->start[0];
    size_t size = size_of_next(state);
    void *start = next(state) % 2 ? realloc(it->start, size) : reallocarray(it->start, 1, size);
    CHECK(start != NULL && *(unsigned char *)start == first, "realloc lost the contents");
    it->start = start;
    it->size = size;
    fill(it);
}

static void *work(void *argument) {
    uint64_t state = 88172645463325252u + (uintptr_t)argument;
    block mine[SLOTS] = {0};
    for (int round = 0; round < ROUNDS; round++) {
        block *it = &mine[next(&state) % SLOTS];
        if (it->start == NULL) {
            make(it, &state);
            continue;
        }
        check(it);
        switch (next(&state) % 8) {
        case 0: grow_or_shrink(it, &state); break;
        case 1: {
            pthread_mutex_lock(&shared_lock);
            block *other = &shared[next(&state) % SLOTS], taken = *other;
            *other = *it;
            *it = taken;
            pthread_mutex_unlock(&shared_lock);
            break;
        }
        default: free(it->start), it->start = NULL; break;
        }
    }
    for (int at = 0; at < SLOTS; at++) free(mine[at].start);
    return NULL;
}

static void all_threads(void) {
    pthread_t threads[THREADS];
    for (uintptr_t at = 0; at < THREADS; at++)
        CHECK(pthread_create(&threads[at], NULL, work, (void *)(at * 977)) == 0, "no thread");
    for (int at = 0; at < THREADS; at++) pthread_join(threads[at], NULL);
}

// The functions that a block may have come from or go to; reallocarray of the C library calls realloc.
static void comes_from(const char *library) {
    const char *names[] = {"malloc", "free", "calloc", "realloc", "memalign", "posix_memalign",
                           "aligned_alloc", "valloc", "pvalloc", "malloc_usable_size"};
    for (size_t at = 0; at < sizeof names / sizeof *names; at++) {
        void *function = dlsym(RTLD_DEFAULT, names[at]);
        Dl_info info;
        int known = function != NULL && dladdr(function, &info) != 0;
        if (!known || strcmp(info.dli_fname, library) != 0) {
            fprintf(stderr, "%s comes from %s\n", names[at], known ? info.dli_fname : "nowhere");
            _exit(1);
        }
    }
    char line[4096];
    int is_mapped = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps != NULL, "/proc/self/maps cannot be read");
    while (fgets(line, sizeof line, maps) != NULL) is_mapped |= strstr(line, library) != NULL;
    fclose(maps);
    CHECK(is_mapped, "the library is not in /proc/self/maps");
}

int main(int count, char **arguments) {
    CHECK(count == 2, "usage: witness LIBRARY");
    alarm(120);
    comes_from(arguments[1]);
    all_threads();
    pid_t child = fork();
    CHECK(child >= 0, "no child");
    if (child == 0) {
        all_threads();
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && status == 0, "the forked child failed");
    all_threads();
    return 0;
}
