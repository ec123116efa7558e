/* The limit on addresses is raised and lowered while threads allocate, others map memory of their own where the heap gave addresses up,
 * and children do either: all of it keeps what was written, and when the limit is lifted there is memory again. */
#include "check.h"
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

enum { THREADS = 4, PIECES = 40, SECONDS = 2 };
static atomic_bool is_over;

static void set_limit(size_t bytes) {
    struct rlimit limit = {.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0, "setrlimit to %zu: errno %d", bytes, errno);
}

/* Replaces pieces of memory of drawn sizes, its own mappings or blocks, and looks at each before it goes. */
static void replace(uint64_t random, bool is_mapping, long turns) {
    struct piece { unsigned char *at; size_t bytes; } piece[PIECES] = {0};
    for (long turn = 0; turn < turns && !is_over; turn++) {
        struct piece *old = &piece[next_random(&random) % PIECES];
        size_t bytes = random_size(&random, is_mapping ? 4096 : 16, 4 * MIB);
        if (old->at != NULL) CHECK_PATTERN(old->at, old->bytes, old->bytes, old->bytes);
        if (is_mapping) {
            if (old->at != NULL) munmap(old->at, old->bytes);
            old->at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (old->at == MAP_FAILED) old->at = NULL;
        } else if (next_random(&random) % 4 == 0) {
            unsigned char *grown = realloc(old->at, bytes);
            if (grown == NULL) continue;
            if (old->at != NULL) CHECK_PATTERN(grown, old->bytes, bytes < old->bytes ? bytes : old->bytes, old->bytes);
            old->at = grown;
        } else {
            free(old->at);
            old->at = malloc(bytes);
        }
        if (old->at != NULL) fill(old->at, old->bytes = bytes, bytes);
    }
    for (struct piece *last = piece; last < piece + PIECES; last++) {
        if (last->at == NULL) continue;
        CHECK_PATTERN(last->at, last->bytes, last->bytes, last->bytes);
        if (is_mapping) munmap(last->at, last->bytes);
        else free(last->at);
    }
}
static void *replace_until_over(void *number) {
    replace((uintptr_t)number + 1, (uintptr_t)number % 2, LONG_MAX);
    return NULL;
}

int main(void) {
    static const size_t limits[] = {0, 64 * MIB, 256 * MIB, 300 * MIB, 512 * MIB, GIB, 40 * GIB, 4096 * GIB, RLIM_INFINITY};
    uint64_t random = 1;
    pthread_t thread[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&thread[i], NULL, replace_until_over, (void *)i) == 0, "no thread");
    for (time_t end = time(NULL) + SECONDS; time(NULL) < end;) {
        uint64_t draw = next_random(&random);
        set_limit(limits[draw % COUNT_OF(limits)]);
        if (draw >> 32 & 1) usleep(draw >> 40 & 8191);
        pid_t child = (draw >> 33 & 15) == 0 ? fork() : -1;
        if (child == 0) {
            alarm(60);
            replace(draw | 1, draw >> 50 & 1, 200);
            set_limit((size_t)1 << (24 + (draw >> 51 & 15)));
            replace(draw | 1, draw >> 50 & 1, 200);
            _exit(0);
        }
        if (child > 0) expect_success(child, "a child");
    }
    is_over = true;
    set_limit(RLIM_INFINITY);
    for (size_t i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    void *last = NULL;
    for (size_t i = 0; i < 300; i++) {
        void **block = malloc(MIB);
        CHECK(block != NULL, "the limit is lifted, but there are only %zu MiB of 300", i);
        memset(block, 1, MIB);
        *block = last, last = block;
    }
    for (void *next; last != NULL; last = next) next = *(void **)last, free(last);
    return 0;
}
