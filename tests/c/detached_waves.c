/* Detached threads that never allocate end in waves, with more stacks than libc keeps: the last ones free, after the destructors of their
 * keys have run, what libc allocated for the stacks of others. Whatever that leaves on a stack, the next thread there starts anew. */
#include "owners.h"
#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { WAVES = 60, MANY = 16, TAKERS = 8, ROUNDS = 500 };
static pthread_barrier_t gate;
static int alive;

static void *wait_only(void *unused) {
    pthread_barrier_wait(&gate);
    __atomic_sub_fetch(&alive, 1, __ATOMIC_RELEASE);
    return unused;
}

static void *take(void *mark) {
    pthread_barrier_wait(&gate);
    use_blocks(ROUNDS, (unsigned char)(long)mark);
    return NULL;
}

int main(void) {
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&detached, 8 << 20);
    for (int wave = 0; wave < WAVES; wave++) {
        pthread_barrier_init(&gate, NULL, MANY);
        alive = MANY;
        for (int i = 0; i < MANY; i++) {
            pthread_t thread;
            CHECK(pthread_create(&thread, &detached, wait_only, NULL) == 0, "no thread");
        }
        while (__atomic_load_n(&alive, __ATOMIC_ACQUIRE) > 0) usleep(100);
        usleep(2000); /* they end */
    }
    pthread_t threads[TAKERS];
    pthread_barrier_init(&gate, NULL, TAKERS);
    for (long i = 0; i < TAKERS; i++) CHECK(pthread_create(&threads[i], NULL, take, (void *)(i + 1)) == 0, "no thread");
    for (int i = 0; i < TAKERS; i++) pthread_join(threads[i], NULL);
    return 0;
}
