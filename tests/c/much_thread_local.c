/* libc cuts thread-local variables from each thread's stack, so the purger's must be longer by as much, and have room for libc's own
 * signals, too: setuid sends one to every thread. The test says how many bytes of such variables there are, as a tunable of glibc or to
 * the compiler. */
#include "check.h"
#include <pthread.h>
#include <time.h>

#ifdef THREAD_LOCAL
static _Thread_local volatile char variables[THREAD_LOCAL];
#else
static volatile char variables[1];
#endif

static pthread_barrier_t begun;

/* In a static program only threads that allocate are known of. */
static void *park(void *unused) {
    (void)unused;
    free(malloc(1));
    pthread_barrier_wait(&begun);
    pause();
    return NULL;
}

int main(void) {
    enum { DEADLINE_MS = 20000, BYTES = 64 * MIB };
    pthread_t thread;
    variables[0] = 1;
    pthread_barrier_init(&begun, NULL, 2);
    CHECK(pthread_create(&thread, NULL, park, NULL) == 0, "no thread");
    pthread_barrier_wait(&begun);
    size_t start = rss_bytes();
    for (int round = 0; round < 3; round++) {
        char *p = malloc(BYTES);
        memset(p, 1, BYTES);
        free(p);
    }
    for (int waited = 0; rss_bytes() > start + 2 * MIB; waited += 10) {
        CHECK(waited < DEADLINE_MS, "%zu KiB stay resident", (rss_bytes() - start) / KIB);
        CHECK(setuid(getuid()) == 0, "setuid: errno %d", errno);
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    }
    return 0;
}
