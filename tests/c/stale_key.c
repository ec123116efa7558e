/* A thread that never allocates ends and frees, past the destructors of its keys, what libc kept for hundreds of stacks; whatever that
 * leaves in its key stays with its own stack, which libc keeps. A forked child starts a thread on that stack, and another. */
#include "owners.h"
#include <pthread.h>

enum { MANY = 580, ROUNDS = 5000 };
static pthread_barrier_t gate;

static void *wait_only(void *unused) {
    pthread_barrier_wait(&gate);
    return unused;
}

static void *nothing(void *unused) { return unused; }

static void *take(void *mark) {
    pthread_barrier_wait(&gate);
    use_blocks(ROUNDS, (unsigned char)(long)mark);
    return NULL;
}

static void run(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), long mark) {
    CHECK(pthread_create(thread, attributes, body, (void *)mark) == 0, "no thread");
}

int main(void) {
    static pthread_t threads[MANY];
    pthread_attr_t small, large, detached;
    pthread_attr_init(&small), pthread_attr_setstacksize(&small, 64 * KIB);
    pthread_attr_init(&large), pthread_attr_setstacksize(&large, 32 * MIB);
    detached = large;
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_barrier_init(&gate, NULL, MANY);
    for (int i = 0; i < MANY; i++) run(&threads[i], &small, wait_only, 0);
    for (int i = 0; i < MANY; i++) pthread_join(threads[i], NULL);
    pthread_t one;
    run(&one, &detached, nothing, 0);
    /* Nobody tells when a detached thread has gone; where it takes longer the child finds nothing on its stack. */
    usleep(300000);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        pthread_barrier_init(&gate, NULL, 2);
        run(&threads[0], &large, take, 1);
        run(&threads[1], &small, take, 2);
        for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
        pthread_barrier_init(&gate, NULL, 1);
        for (int i = 0; i < 3; i++) {
            run(&one, &large, take, 1);
            pthread_join(one, NULL);
        }
        _exit(0);
    }
    expect_success(child, "threads of a child");
    return 0;
}
