/* A filter that ends the process for a call that docs/deploy.md, "Sandboxes", does not list: blocks of all sizes come and go in threads
 * and in forked children, until the background thread has come and gone. Where FAULTLESS is set it may make more; with the argument
 * "announced" the filter is announced by libc's prctl, and fewer are listed. */
#include "seccomp.h"
#include <pthread.h>
#include <signal.h>

#define ALLOW(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

/* Where signals are blocked, the process ends by this one. */
static void name_call(int number, siginfo_t *information, void *context) {
    (void)number, (void)context;
    CHECK(false, "call %d is not listed", information->si_syscall);
}

static void install(bool is_announced) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        /* Each call is two steps. */
        BPF_STMT(BPF_JMP | BPF_JA, is_announced ? 14 : 0),
        ALLOW(SYS_membarrier), ALLOW(SYS_sched_yield), ALLOW(SYS_getrusage), ALLOW(SYS_prctl), ALLOW(SYS_gettid), ALLOW(SYS_tgkill),
        ALLOW(SYS_prlimit64),
        BPF_STMT(BPF_JMP | BPF_JA, getenv("FAULTLESS") ? 0 : 8),
        ALLOW(SYS_fstat), ALLOW(SYS_rt_sigtimedwait), ALLOW(SYS_openat), ALLOW(SYS_close),
        /* The allocator's. */
        ALLOW(SYS_mmap), ALLOW(SYS_munmap), ALLOW(SYS_mprotect), ALLOW(SYS_mremap), ALLOW(SYS_madvise), ALLOW(SYS_futex),
        ALLOW(SYS_rt_sigprocmask), ALLOW(SYS_getpid), ALLOW(SYS_clock_gettime),
        /* Those of libc's threads, forks and waits, and this program's own. */
        ALLOW(SYS_clone), ALLOW(SYS_clone3), ALLOW(SYS_rt_sigaction), ALLOW(SYS_set_robust_list), ALLOW(SYS_rseq), ALLOW(SYS_wait4), ALLOW(SYS_exit),
        ALLOW(SYS_exit_group), ALLOW(SYS_clock_nanosleep), ALLOW(SYS_write), ALLOW(SYS_rt_sigreturn),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP)};
    struct sigaction action = {.sa_sigaction = name_call, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGSYS, &action, NULL) == 0, "sigaction: errno %d", errno);
    if (is_announced) CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs: errno %d", errno);
    install_filter(filter, COUNT_OF(filter));
}

static void *work(void *argument) {
    enum { HELD = 200, STEPS = 8000 };
    uint64_t random = (uintptr_t)argument + 1;
    unsigned char *held[HELD] = {0};
    for (int step = 0; step < STEPS; step++) {
        size_t i = next_random(&random) % HELD, n = random_size(&random, 1, step % 50 ? 20000 : 8 * MIB);
        if (step % 3 == 0) {
            void *grown = realloc(held[i], n);
            CHECK(grown != NULL, "no memory for %zu", n);
            held[i] = grown;
        } else {
            free(held[i]);
            held[i] = step % 3 == 1 ? calloc(1, n) : malloc(n);
            CHECK(held[i] != NULL, "no memory for %zu", n);
        }
        fill(held[i], n, i);
    }
    for (size_t i = 0; i < HELD; i++) free(held[i]);
    return NULL;
}

static void work_in_threads(void) {
    pthread_t thread[2];
    for (uintptr_t i = 0; i < 2; i++) CHECK(pthread_create(&thread[i], NULL, work, (void *)i) == 0, "no thread");
    work((void *)2);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    malloc_trim(0);
}

int main(int count, char **arguments) {
    free(malloc(1));
    install(count > 1 && strcmp(arguments[1], "announced") == 0);
    work(NULL);
    work_in_threads();
    pid_t child = fork();
    if (child == 0) {
        work_in_threads();
        _exit(0);
    }
    expect_success(child, "a child");
    /* The background thread looks a few times more, and ends. */
    usleep(1500000);
    work_in_threads();
    return 0;
}
