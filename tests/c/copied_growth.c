/* Blocks that grow by copying into memory that has pages make no system call: nothing is moved, so nothing is to be said to the kernel. */
#include "check.h"
#include "seccomp.h"
#include <signal.h>

enum { BLOCKS = 16, FIRST_BYTES = 100000, LAST_BYTES = 1500000 };

static volatile sig_atomic_t calls;

static void count_call(int signal) {
    (void)signal;
    calls++;
}

/* By turns, so that each finds another behind it and is copied. */
static void grow_all(void) {
    char *blocks[BLOCKS] = {0};
    for (size_t bytes = FIRST_BYTES; bytes < LAST_BYTES; bytes += bytes / 2)
        for (int i = 0; i < BLOCKS; i++) {
            blocks[i] = realloc(blocks[i], bytes);
            CHECK(blocks[i] != NULL, "no memory");
            memset(blocks[i], i, bytes);
        }
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
}

int main(void) {
    for (int round = 0; round < 3; round++) grow_all();
    struct sigaction action = {.sa_handler = count_call};
    CHECK(sigaction(SIGSYS, &action, NULL) == 0, "sigaction: errno %d", errno);
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mremap, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    install_filter(filter, COUNT_OF(filter));
    grow_all();
    CHECK(calls == 0 || !preloaded(), "%d calls of madvise and mremap", (int)calls);
    return 0;
}
