/* Handlers of forks that are registered before anything allocates run after those that are registered later. One of them takes a mutex
 * that another thread holds while it allocates. */
#include "check.h"
#include <pthread.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static volatile int is_over;

static void lock(void) { pthread_mutex_lock(&mutex); }
static void unlock(void) { pthread_mutex_unlock(&mutex); }

static void *work(void *unused) {
    static void *blocks[3000];
    while (!is_over) {
        lock();
        for (size_t i = 0; i < COUNT_OF(blocks); i++) blocks[i] = malloc(3000);
        for (size_t i = 0; i < COUNT_OF(blocks); i++) free(blocks[i]);
        unlock();
        usleep(100);
    }
    return unused;
}

int main(void) {
    pthread_atfork(lock, unlock, unlock);
    alarm(60);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, work, NULL) == 0, "no thread");
    for (int i = 0; i < 200; i++) {
        pid_t child = fork();
        if (child == 0) _exit(0);
        expect_success(child, "fork");
        usleep(200);
    }
    is_over = 1;
    pthread_join(thread, NULL);
    return 0;
}
