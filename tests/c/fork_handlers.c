/* pthread_atfork handlers may allocate and free, registered before or after the allocator's own. */
#include "check.h"
#include <pthread.h>

static unsigned char *kept[2];
static int prepared[2], after_parent[2], after_child[2];

static void churn(void) {
    for (int i = 0; i < 60; i++) free(realloc(malloc(i * 60), i * 700));
}
#define HANDLERS(n)                                                              \
    static void prepare##n(void) {                                               \
        churn(), prepared[n]++;                                                  \
        kept[n] = malloc(4000);                                                  \
        fill(kept[n], 4000, n);                                                  \
    }                                                                            \
    static void parent##n(void) {                                                \
        CHECK_PATTERN(kept[n], 4000, 4000, n);                                   \
        free(kept[n]), churn(), after_parent[n]++;                               \
    }                                                                            \
    static void child##n(void) {                                                 \
        alarm(20);                                                               \
        CHECK_PATTERN(kept[n], 4000, 4000, n);                                   \
        free(kept[n]), churn(), after_child[n]++;                                \
    }
HANDLERS(0)
HANDLERS(1)

extern int __register_atfork(void (*)(void), void (*)(void), void (*)(void), void *);
static void preinit(int argc, char **argv, char **environment) {
    (void)argc, (void)argv, (void)environment;
    CHECK(__register_atfork(prepare0, parent0, child0, NULL) == 0, "registering before all others failed");
}
__attribute__((section(".preinit_array"), used)) static void (*preinit_entry)(int, char **, char **) = preinit;

static bool stop;
static void *busy(void *argument) {
    uint64_t random = (uintptr_t)argument + 1;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        void *p = malloc(random_size(&random, 1, 100000)), *q = malloc(random_size(&random, 1, 1000));
        free(p), free(q);
    }
    return NULL;
}

int main(void) {
    alarm(100);
    CHECK(pthread_atfork(prepare1, parent1, child1) == 0, "pthread_atfork failed");
    pthread_t thread[4];
    for (uintptr_t i = 0; i < 4; i++) pthread_create(&thread[i], NULL, busy, (void *)i);
    for (int number = 1; number <= 200; number++) {
        pid_t pid = fork();
        if (pid == 0) {
            churn();
            exit(after_child[0] == 1 && after_child[1] == 1 ? 0 : 3);
        }
        expect_success(pid, "fork with handlers that allocate");
        CHECK(prepared[0] == number && prepared[1] == number && after_parent[0] == number && after_parent[1] == number,
              "a handler did not run");
    }
    stop = true;
    for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
    return 0;
}
