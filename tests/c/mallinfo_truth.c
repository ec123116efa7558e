/* mallinfo2 and mallinfo count the bytes in use: up with live blocks, down after free, of all threads. */
#include "check.h"
#include <pthread.h>

#define SLACK (512 * KIB)

static size_t in_use(void) {
    struct mallinfo2 info = mallinfo2();
    CHECK(info.uordblks <= info.arena + info.hblkhd, "in use %zu, but only %zu + %zu held", info.uordblks, info.arena,
          info.hblkhd);
    return info.uordblks + info.hblkhd;
}

static void *block[40000];
static void take(size_t count, size_t size) {
    for (size_t i = 0; i < count; i++) {
        block[i] = malloc(size);
        CHECK(block[i] != NULL, "malloc(%zu) returned NULL", size);
    }
}
static void give(size_t count) {
    for (size_t i = 0; i < count; i++) free(block[i]);
}

static pthread_barrier_t barrier;
static void *other(void *unused) {
    take(20000, 1000);
    pthread_barrier_wait(&barrier); /* the main thread looks */
    pthread_barrier_wait(&barrier);
    give(20000);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return unused;
}

static void expect(const char *when, size_t base, size_t live) {
    size_t now = in_use();
    CHECK(now + SLACK >= base + live, "%s: %zu bytes live, but the count rose only by %zd", when, live, (ssize_t)(now - base));
    CHECK(now <= base + live + live / 4 + SLACK, "%s: %zu bytes live, but the count rose by %zd", when, live,
          (ssize_t)(now - base));
}

int main(void) {
    free(malloc(1));
    size_t base = in_use();
    struct { size_t count, size; } loads[] = {{40000, 16}, {40000, 100}, {20000, 1000}, {2000, 30000}, {500, 100000}, {3, 64 * MIB}};
    for (size_t i = 0; i < COUNT_OF(loads); i++) {
        take(loads[i].count, loads[i].size);
        size_t live = loads[i].count * loads[i].size;
        /* glibc adds 8 bytes a block and rounds to 32. */
        size_t rounding = loads[i].size < 32 ? loads[i].count * 16 : 0;
        expect("after malloc", base, live + rounding / 2);
        struct mallinfo old = mallinfo();
        if (loads[i].size < 100000)
            CHECK((size_t)old.uordblks + SLACK >= live, "mallinfo: %zu bytes live, uordblks is %d", live, old.uordblks);
        give(loads[i].count);
        expect("after free", base, 0);
    }
    pthread_t thread;
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_create(&thread, NULL, other, NULL);
    pthread_barrier_wait(&barrier);
    expect("another thread holds blocks", base, 20000 * 1000);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    expect("another thread freed its blocks", base, 0);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    expect("the other thread is gone", base, 0);
    return 0;
}
