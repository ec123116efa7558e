/* Destructors of thread-specific data free and allocate, round after round, as keys made before and after the first malloc. */
#include "check.h"
#include <pthread.h>

enum { KEYS = 6 };
static pthread_key_t key[KEYS];
static int rounds_seen[KEYS];
struct value { int index, round; unsigned char *block; };

/* Frees a value of its key and, for three rounds, sets a new one: the destructor is called again. */
static void destroy(void *argument) {
    struct value *value = argument;
    int index = value->index, round = value->round;
    CHECK_PATTERN(value->block, 100 + 5000 * index, 100 + 5000 * index, index);
    __atomic_add_fetch(&rounds_seen[index], 1, __ATOMIC_RELAXED);
    free(value->block), free(value);
    for (int i = 0; i < 200; i++) free(malloc(i * 100));
    if (round == 3) return;
    value = malloc(sizeof *value);
    *value = (struct value){index, round + 1, malloc(100 + 5000 * index)};
    fill(value->block, 100 + 5000 * index, index);
    pthread_setspecific(key[index], value);
}

/* Before any library's constructor: the first keys of the process. */
static void preinit(int argc, char **argv, char **environment) {
    (void)argc, (void)argv, (void)environment;
    for (int i = 0; i < KEYS / 2; i++) CHECK(pthread_key_create(&key[i], destroy) == 0, "no key");
}
__attribute__((section(".preinit_array"), used)) static void (*preinit_entry)(int, char **, char **) = preinit;

static void set(int index) {
    struct value *value = malloc(sizeof *value);
    *value = (struct value){index, 0, malloc(100 + 5000 * index)};
    fill(value->block, 100 + 5000 * index, index);
    pthread_setspecific(key[index], value);
}
static void *work(void *reversed) {
    for (int i = 0; i < KEYS; i++) set(reversed ? KEYS - 1 - i : i);
    for (int i = 0; i < 100; i++) free(malloc(i * 64));
    return NULL;
}
/* A thread whose very first malloc is in a destructor. */
static pthread_key_t silent_key;
static void first_malloc(void *argument) {
    (void)argument;
    for (int i = 0; i < 100; i++) {
        void *p = malloc(i * 50);
        CHECK(p != NULL, "no memory in a destructor");
        free(p);
    }
}
static void *silent(void *unused) {
    pthread_setspecific(silent_key, key);
    return unused;
}

int main(void) {
    for (int i = KEYS / 2; i < KEYS; i++) CHECK(pthread_key_create(&key[i], destroy) == 0, "no key");
    CHECK(pthread_key_create(&silent_key, first_malloc) == 0, "no key");
    size_t start = 0, used = 0;
    enum { THREADS = 600 };
    for (uintptr_t i = 0; i < THREADS; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, work, (void *)(i % 2)) == 0, "no thread");
        pthread_join(thread, NULL);
        CHECK(pthread_create(&thread, NULL, silent, NULL) == 0, "no thread");
        pthread_join(thread, NULL);
        if (i == 100) start = kept_bytes(), used = mallinfo2().uordblks;
    }
    for (int i = 0; i < KEYS; i++)
        CHECK(rounds_seen[i] == 4 * THREADS, "key %d: %d destructors of %d ran", i, rounds_seen[i], 4 * THREADS);
    CHECK(kept_bytes() < start + MIB, "500 threads left %zu KiB resident", (kept_bytes() - start) / KIB);
    size_t now = mallinfo2().uordblks;
    CHECK(now < used + 256 * KIB, "500 threads left %zu bytes counted as in use", now - used);
    return 0;
}
