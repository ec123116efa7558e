/* A process may end while another of its threads forks for seconds, as it does where much memory is mapped. Here the system call waits for
 * a filter's answer. */
#include "seccomp.h"
#include <pthread.h>
#include <semaphore.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <time.h>

static int calls;
static sem_t has_filter, forks;

static void *answer_late(void *unused) {
    while (sem_wait(&has_filter) != 0) {}
    struct seccomp_notif call = {0};
    CHECK(ioctl(calls, SECCOMP_IOCTL_NOTIF_RECV, &call) == 0, "no call: errno %d", errno);
    sem_post(&forks);
    struct timespec late = {8, 0};
    nanosleep(&late, NULL);
    struct seccomp_notif_resp answer = {.id = call.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
    CHECK(ioctl(calls, SECCOMP_IOCTL_NOTIF_SEND, &answer) == 0, "no answer: errno %d", errno);
    return unused;
}

static void *fork_slowly(void *unused) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {COUNT_OF(filter), filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs: errno %d", errno);
    /* Of this thread alone. */
    calls = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
    if (calls < 0) {
        say_skipped("a filter whose answers a thread gives is refused");
        exit(0);
    }
    sem_post(&has_filter);
    if (fork() == 0) _exit(0);
    for (;;) pause();
    return unused;
}

int main(void) {
    pthread_t answering, forking;
    sem_init(&has_filter, 0, 0);
    sem_init(&forks, 0, 0);
    alarm(60);
    CHECK(pthread_create(&answering, NULL, answer_late, NULL) == 0, "no thread");
    CHECK(pthread_create(&forking, NULL, fork_slowly, NULL) == 0, "no thread");
    while (sem_wait(&forks) != 0) {}
    return 0;
}
