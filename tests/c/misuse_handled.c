/* A block is freed twice, found while the heap's locks are held; the handler of SIGABRT allocates, as those do that describe a
   crash. It writes "handled", and the process ends. With "both" another thread makes a mistake, too, while the first is in the handler,
   and stops there. */
#include "check.h"
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

enum { BLOCKS = 100000, IN_HANDLER = 3000 };

static void *blocks[BLOCKS];

static sem_t begun, stopped;
static atomic_int handlers;
static int has_second;

static void *nothing(void *argument) { return argument; }

static void *second(void *block) {
    sem_wait(&begun);
    free((char *)block + 8);
    return NULL;
}

static void describe(int signal) {
    static size_t *own[IN_HANDLER];
    (void)signal;
    if (atomic_fetch_add(&handlers, 1) > 0) {
        sem_post(&stopped);
        for (;;) pause();
    }
    if (has_second) sem_post(&begun), sem_wait(&stopped);
    for (size_t i = 0; i < IN_HANDLER; i++) {
        CHECK(own[i] = malloc(64), "the handler gets memory");
        own[i][7] = i;
    }
    for (size_t i = 0; i < IN_HANDLER; i++) {
        CHECK(own[i][7] == i, "a block of the handler is another's, too");
        free(own[i]);
    }
    CHECK(write(1, "handled\n", 8) == 8, "written");
}

int main(int argc, char **argv) {
    CHECK(argc == 3, "usage: misuse_handled trim|flush|both THREADS");
    alarm(20);
    signal(SIGABRT, describe);
    if (atoi(argv[2]) > 1) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, nothing, NULL) == 0, "a thread");
        pthread_join(thread, NULL);
    }
    has_second = strcmp(argv[1], "both") == 0;
    if (has_second) {
        pthread_t thread;
        CHECK(sem_init(&begun, 0, 0) == 0 && sem_init(&stopped, 0, 0) == 0, "semaphores");
        CHECK(pthread_create(&thread, NULL, second, malloc(64)) == 0, "a second thread");
    }
    for (int i = 0; i < BLOCKS; i++) blocks[i] = malloc(64);
    free(blocks[0]), free(blocks[1]), free(blocks[0]);
    if (strcmp(argv[1], "flush") != 0) malloc_trim(0);
    for (int i = 2; i < BLOCKS; i++) free(blocks[i]);
    puts("not found");
    return 0;
}
