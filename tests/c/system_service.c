/* A filter that ends the process for calls that systemd's SystemCallFilter=@system-service ~@resources (252) does not list, as units
   of Debian have it: large blocks are filled and freed, in this process and from the start. */
#include "seccomp.h"
#include <pthread.h>

#define END(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

static void install(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        END(SYS_mincore), END(SYS_process_madvise), END(SYS_move_pages), END(SYS_mbind), END(SYS_sched_setaffinity),
        END(SYS_sched_setscheduler), END(SYS_setpriority), END(SYS_setrlimit), END(SYS_perf_event_open), END(SYS_bpf),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    install_filter(filter, COUNT_OF(filter));
}

static void *work(void *argument) {
    (void)argument;
    for (size_t turn = 0; turn < 20; turn++) {
        size_t n = (2 + turn % 5 * 4) * MIB;
        unsigned char *filled = malloc(n), *sparse = malloc(n);
        CHECK(filled != NULL && sparse != NULL, "no memory for %zu", n);
        fill(filled, n, turn);
        sparse[n / 2] = 1;
        CHECK_PATTERN(filled, n, n, turn);
        free(filled);
        free(sparse);
    }
    return NULL;
}

static void everything(void) {
    work(NULL);
    pthread_t thread[2];
    for (int i = 0; i < 2; i++) pthread_create(&thread[i], NULL, work, NULL);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    malloc_trim(0);
}

int main(int argc, char **argv) {
    if (argc == 1) {
        install();
        everything();
        char *arguments[] = {argv[0], "again", NULL};
        execv(argv[0], arguments);
        CHECK(false, "exec: errno %d", errno);
    }
    everything();
    return 0;
}
