/* A child that a process with threads forks has none of the large blocks that other threads freed and keep. */
#include "check.h"
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>

enum { THREADS = 4, BLOCKS = 9, BYTES = 200000 };

static pthread_barrier_t resting, done;

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static void *take_and_free(void *ignored) {
    (void)ignored;
    /* Long enough for the background thread to be there. */
    for (double end = seconds() + 0.3; seconds() < end;) {
        char *blocks[BLOCKS];
        for (int i = 0; i < BLOCKS; i++) {
            blocks[i] = malloc(BYTES);
            CHECK(blocks[i], "no memory");
            blocks[i][0] = 1;
        }
        for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    }
    pthread_barrier_wait(&resting);
    pthread_barrier_wait(&done);
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    pthread_barrier_init(&resting, NULL, THREADS + 1);
    pthread_barrier_init(&done, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, take_and_free, NULL) == 0, "no thread");
    pthread_barrier_wait(&resting);
    pid_t child = fork();
    if (child == 0) {
        malloc_trim(0);
        struct mallinfo2 info = mallinfo2();
        CHECK(info.hblks == 0, "%zu large blocks of %zu bytes are lost", info.hblks, info.hblkhd);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0, "the child ended with %d", status);
    pthread_barrier_wait(&done);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    return 0;
}
