/* A fork while another thread is in the loader, whose lock the child finds held for ever: threads of the child allocate all the
 * same, and a purger of theirs comes. */
#include "check.h"
#include <link.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/wait.h>

static sem_t is_inside, may_leave;

static int wait_inside(struct dl_phdr_info *info, size_t bytes, void *argument) {
    (void)info, (void)bytes, (void)argument;
    sem_post(&is_inside);
    sem_wait(&may_leave);
    return 1;
}

static void *walk(void *argument) {
    dl_iterate_phdr(wait_inside, NULL);
    return argument;
}

static void *allocate(void *argument) {
    for (int i = 0; i < 100; i++) {
        char *block = malloc(3 * MIB);
        CHECK(block != NULL, "no memory");
        memset(opaque(block), 1, 3 * MIB);
        free(block);
    }
    return argument;
}

int main(void) {
    alarm(60);
    sem_init(&is_inside, 0, 0);
    sem_init(&may_leave, 0, 0);
    pthread_t walker;
    CHECK(pthread_create(&walker, NULL, walk, NULL) == 0, "no thread");
    sem_wait(&is_inside);
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        pthread_t threads[2];
        for (size_t i = 0; i < COUNT_OF(threads); i++)
            CHECK(pthread_create(&threads[i], NULL, allocate, NULL) == 0, "no thread in the child");
        for (size_t i = 0; i < COUNT_OF(threads); i++) pthread_join(threads[i], NULL);
        _exit(0);
    }
    sem_post(&may_leave);
    int status = 0;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0, "the child ended with status %#x", status);
    pthread_join(walker, NULL);
    return 0;
}
