/* A block is freed twice, found while the heap's locks are held; the handler of SIGABRT allocates, as those do that describe a
   crash. It writes "handled", and the process ends. */
#include "check.h"
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

enum { BLOCKS = 100000, IN_HANDLER = 3000 };

static void *blocks[BLOCKS];

static void *nothing(void *argument) { return argument; }

static void describe(int signal) {
    static size_t *own[IN_HANDLER];
    (void)signal;
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
    CHECK(argc == 3, "usage: misuse_handled trim|flush THREADS");
    alarm(20);
    signal(SIGABRT, describe);
    if (atoi(argv[2]) > 1) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, nothing, NULL) == 0, "a thread");
        pthread_join(thread, NULL);
    }
    for (int i = 0; i < BLOCKS; i++) blocks[i] = malloc(64);
    free(blocks[0]), free(blocks[1]), free(blocks[0]);
    if (strcmp(argv[1], "trim") == 0) malloc_trim(0);
    for (int i = 2; i < BLOCKS; i++) free(blocks[i]);
    puts("not found");
    return 0;
}
