/* Vectors that grow in several threads, and change hands: each grows where its thread's last one lay, into what others left or away from
 * it, and keeps every byte; calloc is zero beside them. */
#include "check.h"
#include <pthread.h>

enum { VECTORS = 3, SHARED = 8, STEPS = 12000 };
static const size_t LEAST = 600, MOST = 300 * KIB;
struct vector { unsigned char *bytes; size_t size; uint64_t seed; };

static struct vector shared[SHARED];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void begin(struct vector *v, uint64_t *random) {
    v->size = random_size(random, LEAST, MOST / 4), v->seed = next_random(random);
    bool zeroed = next_random(random) % 4 == 0;
    v->bytes = zeroed ? calloc(1, v->size) : malloc(v->size);
    CHECK(v->bytes != NULL, "no memory for %zu", v->size);
    if (zeroed) CHECK(first_nonzero(v->bytes, v->size) == SIZE_MAX, "calloc(%zu) is not zero", v->size);
    fill(v->bytes, v->size, v->seed);
}

static void end(struct vector *v) {
    if (v->bytes == NULL) return;
    CHECK_PATTERN(v->bytes, v->size, v->size, v->seed);
    free(v->bytes);
    v->bytes = NULL;
}

static void resize(struct vector *v, size_t size) {
    size_t kept = size < v->size ? size : v->size;
    v->bytes = realloc(v->bytes, size);
    CHECK(v->bytes != NULL, "no memory for %zu", size);
    CHECK_PATTERN(v->bytes, v->size, kept, v->seed);
    v->size = size;
    fill(v->bytes, size, v->seed);
}

static void exchange(struct vector *v, uint64_t *random) {
    size_t place = next_random(random) % SHARED;
    pthread_mutex_lock(&lock);
    struct vector other = shared[place];
    shared[place] = *v;
    pthread_mutex_unlock(&lock);
    *v = other;
}

static void *work(void *argument) {
    uint64_t random = (uintptr_t)argument;
    struct vector own[VECTORS] = {0};
    for (int step = 0; step < STEPS; step++) {
        struct vector *v = &own[next_random(&random) % VECTORS];
        uint64_t chance = next_random(&random) % 100;
        if (v->bytes == NULL) begin(v, &random);
        else if (chance < 75 && v->size < MOST) resize(v, v->size + v->size / (1 + next_random(&random) % 5) + 1);
        else if (chance < 80) resize(v, v->size / 2 + 1);
        else if (chance < 90) exchange(v, &random);
        else end(v);
    }
    for (int i = 0; i < VECTORS; i++) end(&own[i]);
    return NULL;
}

int main(void) {
    enum { THREADS = 6 };
    pthread_t thread[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&thread[i], NULL, work, (void *)(i + 1)) == 0, "no thread");
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < SHARED; i++) end(&shared[i]);
    return 0;
}
