/* A thread ends with blocks still live; others read and free them, and use the memory again. */
#include "check.h"
#include <pthread.h>

enum { BLOCKS = 1500 };
struct batch { unsigned char *block[BLOCKS]; size_t size[BLOCKS]; uint64_t seed; };

static void *leave_behind(void *argument) {
    struct batch *batch = argument;
    uint64_t random = batch->seed * 77 + 1;
    for (size_t i = 0; i < BLOCKS; i++) {
        batch->size[i] = random_size(&random, 1, i % 100 ? 3000 : 300000);
        batch->block[i] = malloc(batch->size[i]);
        CHECK(batch->block[i] != NULL, "no memory");
        fill(batch->block[i], batch->size[i], batch->seed + i);
        free(malloc(random_size(&random, 1, 5000)));
    }
    return NULL;
}
static void *collect(void *argument) {
    struct batch *batch = argument;
    for (size_t k = 0; k < BLOCKS; k++) {
        size_t i = k * 7 % BLOCKS;
        CHECK_PATTERN(batch->block[i], batch->size[i], batch->size[i], batch->seed + i);
        free(batch->block[i]);
    }
    return NULL;
}

int main(void) {
    static struct batch batch[2];
    size_t start = 0;
    for (uint64_t round = 0; round < 200; round++) {
        pthread_t thread[2];
        for (int i = 0; i < 2; i++) batch[i].seed = round * 2 + i, pthread_create(&thread[i], NULL, leave_behind, &batch[i]);
        for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
        if (round % 2) for (int i = 0; i < 2; i++) collect(&batch[i]);
        else {
            for (int i = 0; i < 2; i++) pthread_create(&thread[i], NULL, collect, &batch[i]);
            for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
        }
        if (round == 50) start = kept_bytes();
    }
    size_t end = kept_bytes();
    CHECK(end < start + 2 * MIB, "150 more rounds grew resident memory by %zu KiB", (end - start) / KIB);
    return 0;
}
