/* fork in a process with 8 busy threads, 300 times, or as often as half a minute lets: the child finds every block whole, frees all,
 * allocates anew, and ends in time. */
#include "check.h"
#include <pthread.h>
#include <time.h>

enum { THREADS = 8, SLOTS = 1024, OWN = 300, FORKS = 300, SECONDS = 30 };
struct block { size_t size; uint64_t seed; unsigned char bytes[]; };
static struct block *slot[SLOTS]; /* whoever takes a block out of its slot owns it */
static bool stop;

static struct block *make(uint64_t *random, size_t most) {
    size_t n = random_size(random, 16, most);
    struct block *b = next_random(random) % 4 ? malloc(sizeof *b + n) : calloc(1, sizeof *b + n);
    CHECK(b != NULL, "no memory for %zu", n);
    b->size = n, b->seed = next_random(random);
    fill(b->bytes, n, b->seed);
    return b;
}
static void check_and_free(struct block *b) {
    if (!b) return;
    CHECK_PATTERN(b->bytes, b->size, b->size, b->seed);
    free(b);
}
static void *busy(void *argument) {
    uint64_t random = (uintptr_t)argument * 1234567 + 1;
    for (int step = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); step++) {
        struct block *b = make(&random, step % 100 ? 4 * KIB : 300 * KIB);
        if (step % 3 == 0) {
            size_t n = b->size * 3 / 2;
            b = realloc(b, sizeof *b + n);
            b->size = n;
            fill(b->bytes, n, b->seed);
        }
        check_and_free(__atomic_exchange_n(&slot[next_random(&random) % SLOTS], b, __ATOMIC_ACQ_REL));
        if (step % 1000 == 0) malloc_trim(0);
    }
    return NULL;
}

static struct block *own[OWN];
static void *in_child(void *unused) {
    uint64_t random = 99;
    for (int i = 0; i < 200; i++) check_and_free(make(&random, 20000));
    return unused;
}
static void child(int number) {
    alarm(20);
    uint64_t random = number + 1;
    for (int i = 0; i < OWN; i++) check_and_free(own[i]);
    for (int i = 0; i < SLOTS; i++) check_and_free(__atomic_exchange_n(&slot[i], NULL, __ATOMIC_ACQ_REL));
    for (int i = 0; i < OWN; i++) own[i] = make(&random, 20000);
    if (number % 4 == 0) malloc_trim(0);
    for (int i = 0; i < OWN; i++) check_and_free(own[i]);
    if (number % 8 == 0) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, in_child, NULL) == 0, "no thread in the child");
        pthread_join(thread, NULL);
    }
    if (number % 16 == 0) {
        pid_t grandchild = fork();
        if (grandchild == 0) alarm(20), in_child(NULL), _exit(0);
        expect_success(grandchild, "fork in a forked child");
    }
    if (number % 2) exit(0);
    _exit(0);
}

int main(void) {
    alarm(100);
    uint64_t random = 5;
    for (int i = 0; i < OWN; i++) own[i] = make(&random, i % 20 ? 10000 : 500000);
    pthread_t thread[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&thread[i], NULL, busy, (void *)i) == 0, "no thread");
    /* Where others keep the CPUs busy a fork takes a second. */
    time_t end = time(NULL) + SECONDS;
    for (int number = 0; number < FORKS && time(NULL) < end; number++) {
        pid_t pid = fork();
        if (pid == 0) child(number);
        if (number % 3 == 0) check_and_free(own[number % OWN]), own[number % OWN] = make(&random, 10000);
        expect_success(pid, "fork with 8 busy threads");
    }
    stop = true;
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < OWN; i++) check_and_free(own[i]);
    for (int i = 0; i < SLOTS; i++) check_and_free(slot[i]);
    return 0;
}
