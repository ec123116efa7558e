/* Memory runs out under a limit set before the start: ENOMEM, nothing corrupted, and all of it usable again.
 * (libc, with holes between its chunks, gets much less the second time; an eighth is asked of it.)
 * Arguments: SIZE of the blocks (0: mixed), LEAST MiB that must be obtained, THREADS (0: the main thread alone). */
#include "check.h"
#include <pthread.h>

struct block { struct block *next; size_t size; uint64_t seed; unsigned char bytes[]; };
static size_t block_size, least;

/* Takes blocks until there is no more; returns the bytes obtained. */
static size_t take_all(struct block **list, uint64_t *random, size_t size) {
    size_t got = 0;
    for (;;) {
        size_t n = size ? size : random_size(random, 64, 256 * KIB);
        errno = 0;
        struct block *b;
        switch (next_random(random) % 4) {
        case 0: b = calloc(1, n); break;
        case 1: {
            void *p = NULL;
            int error = posix_memalign(&p, 64, n);
            CHECK(p ? error == 0 : error == ENOMEM, "posix_memalign returned %d", error);
            if (!p) errno = ENOMEM;
            b = p;
            break;
        }
        case 2: {
            struct block *half = malloc(n / 2 + sizeof *b);
            if (half) {
                half->seed = n;
                b = realloc(half, n);
                if (!b) {
                    CHECK(errno == ENOMEM, "realloc failed with errno %d", errno);
                    CHECK(half->seed == n, "a failed realloc changed the block");
                    free(half);
                }
            } else b = NULL;
            break;
        }
        default: b = malloc(n);
        }
        if (!b) {
            CHECK(errno == ENOMEM, "out of memory with errno %d, not ENOMEM", errno);
            return got;
        }
        b->next = *list, b->size = n, b->seed = next_random(random);
        fill(b->bytes, n - sizeof *b, b->seed);
        *list = b;
        got += n;
    }
}
static void give_all(struct block **list) {
    while (*list) {
        struct block *b = *list;
        CHECK_PATTERN(b->bytes, b->size - sizeof *b, b->size - sizeof *b, b->seed);
        *list = b->next;
        free(b);
    }
}

static void alone(void) {
    uint64_t random = 11;
    struct block *list = NULL;
    size_t first = take_all(&list, &random, block_size);
    CHECK(first >= least, "only %zu MiB obtained, at least %zu expected", first / MIB, least / MIB);
    for (int i = 0; i < 100; i++) CHECK(malloc(opaque_size(first)) == NULL, "more memory than there is");
    give_all(&list);
    for (int round = 0; round < 2; round++) {
        size_t again = take_all(&list, &random, block_size);
        CHECK(again >= (preloaded() ? first / 10 * 9 : first / 8), "first %zu KiB, after freeing all only %zu KiB", first / KIB, again / KIB);
        give_all(&list);
    }
    /* What small blocks occupied serves great ones. */
    size_t other = take_all(&list, &random, block_size < 100000 ? MIB : 1000);
    CHECK(other >= (preloaded() ? first / 4 * 3 : first / 8), "in blocks of another size only %zu KiB of %zu", other / KIB, first / KIB);
    give_all(&list);
}

static pthread_barrier_t barrier;
static void *in_thread(void *argument) {
    uint64_t random = (uintptr_t)argument * 5 + 1;
    for (int round = 0; round < 4; round++) {
        struct block *list = NULL;
        pthread_barrier_wait(&barrier);
        take_all(&list, &random, block_size);
        pthread_barrier_wait(&barrier);
        give_all(&list);
    }
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc == 4, "usage: exhaust SIZE LEAST_MIB THREADS");
    block_size = strtoull(argv[1], NULL, 10);
    least = strtoull(argv[2], NULL, 10) * MIB;
    int threads = atoi(argv[3]);
    pthread_t thread[16];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 * KIB);
    pthread_barrier_init(&barrier, NULL, threads);
    for (uintptr_t i = 0; i < (uintptr_t)threads; i++)
        CHECK(pthread_create(&thread[i], &attributes, in_thread, (void *)i) == 0, "no thread");
    for (int i = 0; i < threads; i++) pthread_join(thread[i], NULL);
    if (threads == 0) alone();
    else {
        uint64_t random = 3;
        struct block *list = NULL;
        size_t got = take_all(&list, &random, block_size);
        CHECK(got >= (preloaded() ? least : least / 8), "after the threads are gone only %zu MiB can be had", got / MIB);
        give_all(&list);
    }
    return 0;
}
