/* Children of children, fork from a thread that is not the first, _Fork and a raw system call in a process with one thread. */
#include "check.h"
#include <pthread.h>
#include <sys/syscall.h>

static unsigned char *inherited[500];

static void prepare_blocks(void) {
    for (size_t i = 0; i < COUNT_OF(inherited); i++) {
        inherited[i] = malloc(i * 50 + 1);
        fill(inherited[i], i * 50 + 1, i);
    }
}
static void check_blocks(void) {
    for (size_t i = 0; i < COUNT_OF(inherited); i++) {
        CHECK_PATTERN(inherited[i], i * 50 + 1, i * 50 + 1, i);
        free(inherited[i]);
    }
    prepare_blocks();
}
static void generations(int left) {
    alarm(20);
    check_blocks();
    if (left == 0) return;
    pid_t pid = fork();
    if (pid == 0) generations(left - 1), exit(0);
    check_blocks();
    expect_success(pid, "a generation");
}
static void *forks_from_thread(void *unused) {
    for (int i = 0; i < 30; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm(20);
            check_blocks();
            malloc_trim(0);
            if (i % 3 == 0) pthread_exit(NULL); /* the last thread of the child: exit status 0 */
            exit(0);
        }
        expect_success(pid, "fork from a second thread");
    }
    return unused;
}

int main(void) {
    prepare_blocks();
    generations(8);
    for (int i = 0; i < 20; i++) {
        pid_t pid = i % 2 ? _Fork() : (pid_t)syscall(SYS_fork);
        if (pid == 0) {
            alarm(20);
            check_blocks();
            _exit(0);
        }
        expect_success(pid, i % 2 ? "_Fork" : "a raw fork");
    }
    pthread_t thread;
    pthread_create(&thread, NULL, forks_from_thread, NULL);
    pthread_join(thread, NULL);
    check_blocks();
    return 0;
}
