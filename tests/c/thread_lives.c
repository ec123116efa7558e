/* Threads of all kinds come and go: detached and joined, with small and large stacks, that never allocate, only free what others left, or only
 * leave blocks, and whose destructors allocate and free until libc calls them no more. Every block keeps what was written to it. */
#include "check.h"
#include <pthread.h>
#include <time.h>

enum { SECONDS = 4, SLOTS = 4096, ALIVE = 40, KEYS = 3, KINDS = 7 };
struct block { size_t bytes; unsigned char rest[]; };
static struct block *slots[SLOTS];
static pthread_key_t keys[KEYS];
static int alive;

static struct block *make(uint64_t *random) {
    size_t bytes = 32 + next_random(random) % (next_random(random) % 20 ? 400 : 90000);
    struct block *block = malloc(bytes);
    block->bytes = bytes;
    memset(block->rest, (int)(bytes * 7), bytes - sizeof *block);
    return block;
}
static void drop(struct block *block) {
    if (block == NULL) return;
    size_t bytes = block->bytes;
    CHECK(bytes >= 32 && bytes <= 90032, "a block begins with %zu", bytes);
    for (size_t i = 0; i < bytes - sizeof *block; i++)
        CHECK(block->rest[i] == (unsigned char)(bytes * 7), "byte %zu of %zu is another's", i, bytes);
    free(block);
}
static struct block *swap(uint64_t *random, struct block *block) {
    return __atomic_exchange_n(&slots[next_random(random) % SLOTS], block, __ATOMIC_ACQ_REL);
}
static void leave_block(uint64_t *random) { drop(swap(random, make(random))); }
static void take_block(uint64_t *random) { drop(swap(random, NULL)); }

/* The value is a round, and a seed above it. */
static void destroy(void *value) {
    uintptr_t round = (uintptr_t)value % 8;
    uint64_t random = (uintptr_t)value;
    for (int i = 0; i < 5; i++) leave_block(&random), take_block(&random);
    if (round < 6) pthread_setspecific(keys[random % KEYS], (char *)value + 1);
}
static void *live(void *seed) {
    uint64_t random = (uintptr_t)seed;
    int kind = (int)(next_random(&random) % KINDS), times = (int)(next_random(&random) % 300);
    if (kind >= 5) pthread_setspecific(keys[random % KEYS], (void *)(uintptr_t)((random % 1000000 + 1) * 8));
    for (int i = 0; i < times; i++) {
        if (kind == 3 || kind == 4 || kind == 6) leave_block(&random);
        if (kind == 2 || kind == 4) take_block(&random);
    }
    if (kind == 1) usleep((unsigned)times * 5);
    __atomic_sub_fetch(&alive, 1, __ATOMIC_RELEASE);
    return NULL;
}

int main(void) {
    static const size_t stacks[] = {128 * KIB, MIB, 8 * MIB, 8 * MIB, 16 * MIB};
    for (int i = 0; i < KEYS; i++) CHECK(pthread_key_create(&keys[i], destroy) == 0, "no key");
    uint64_t random = 1;
    int threads = 0;
    for (time_t end = time(NULL) + SECONDS; time(NULL) < end;) {
        while (__atomic_load_n(&alive, __ATOMIC_ACQUIRE) > ALIVE) usleep(50);
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setstacksize(&attributes, stacks[next_random(&random) % COUNT_OF(stacks)]);
        bool is_joined = next_random(&random) % 3 == 0;
        if (!is_joined) pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        pthread_t thread;
        __atomic_add_fetch(&alive, 1, __ATOMIC_RELAXED);
        CHECK(pthread_create(&thread, &attributes, live, (void *)(uintptr_t)next_random(&random)) == 0, "no thread");
        if (is_joined) pthread_join(thread, NULL);
        if (++threads % 500 == 0) malloc_trim(0);
    }
    while (__atomic_load_n(&alive, __ATOMIC_ACQUIRE) > 0) usleep(1000);
    usleep(100000); /* the last destructors */
    for (int i = 0; i < SLOTS; i++) drop(slots[i]);
    return 0;
}
