/* libc frees the thread-local variables of a library that was opened late under a lock that pthread_create takes. */
#include "check.h"
#include <dlfcn.h>
#include <pthread.h>

enum { THREADS = 20 };
static void (*touch)(void);
static pthread_barrier_t all;

static void *work(void *unused) {
    touch();
    pthread_barrier_wait(&all);
    /* Long enough for a purger to leave. */
    sleep(2);
    return unused;
}

int main(int argc, char **argv) {
    CHECK(argc == 2, "usage: tls_of_a_library NAME");
    alarm(40);
    void *library = dlopen(argv[1], RTLD_NOW);
    CHECK(library != NULL, "dlopen: %s", dlerror());
    *(void **)&touch = dlsym(library, "touch");
    char *block = malloc(4 * MIB);
    memset(block, 1, 4 * MIB);
    pthread_barrier_init(&all, NULL, THREADS);
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&thread[i], NULL, work, NULL) == 0, "no thread");
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    free(block);
    return 0;
}
