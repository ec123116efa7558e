/* A fork handler that was registered before the allocator's trims while other threads are in their slow paths: nobody's
 * blocks are taken from under them. */
#include "check.h"
#include <pthread.h>
#include <sys/wait.h>

static void prepare(void) { malloc_trim(0); }

/* Before anything of this process allocates, so that it runs with the allocator's own locks held. */
__attribute__((constructor(101))) static void first(void) { pthread_atfork(prepare, NULL, NULL); }

static void *allocate_for_ever(void *argument) {
    uint64_t random = (uintptr_t)argument;
    for (;;) {
        void *block[200];
        for (size_t i = 0; i < COUNT_OF(block); i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            block[i] = opaque(malloc((random >> 33) % 4000 + 1));
        }
        for (size_t i = 0; i < COUNT_OF(block); i++) free(block[i]);
    }
    return NULL;
}

int main(void) {
    alarm(100);
    for (uintptr_t i = 1; i <= 4; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, allocate_for_ever, (void *)i) == 0, "no thread");
    }
    for (int i = 0; i < 500; i++) {
        pid_t child = fork();
        if (child == 0) _exit(0);
        int status = 0;
        CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0, "fork %d", i);
    }
    _exit(0);
}
