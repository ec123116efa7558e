/* A tool's wrapper around pthread_create keeps books under a mutex; the real one allocates. */
#include "check.h"
#include <dlfcn.h>
#include <pthread.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int created;

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *argument) {
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    pthread_mutex_lock(&mutex);
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    created++;
    int result = real(thread, attributes, body, argument);
    pthread_mutex_unlock(&mutex);
    return result;
}

static void *work(void *unused) {
    for (int i = 0; i < 1000; i++) free(malloc(i));
    return unused;
}

int main(void) {
    alarm(60);
    /* From a MiB on a process with threads has one of ours. */
    free(memset(malloc(4 * MIB), 1, 4 * MIB));
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, work, NULL) == 0, "no thread");
        pthread_join(thread, NULL);
    }
    CHECK(created == 20, "%d threads were seen, not 20", created);
    return 0;
}
