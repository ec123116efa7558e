/* A kernel before Linux 4.17, or a tool that stands in for one: it does not know to leave the source of a move mapped, takes the
 * address of MAP_FIXED_NOREPLACE for a hint, and has no membarrier. Blocks grow all the same, and keep what was written. */
#include "seccomp.h"
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#if defined __x86_64__
#define ARGUMENT(context, i) ((context)->uc_mcontext.gregs[(const int[]){REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8, REG_R9}[i]])
#define ANSWER(context) ((context)->uc_mcontext.gregs[REG_RAX])
#elif defined __aarch64__
#define ARGUMENT(context, i) ((context)->uc_mcontext.regs[i])
#define ANSWER(context) ((context)->uc_mcontext.regs[0])
#endif
#define NOREPLACE 0x100000
#define DONTUNMAP 4
#define ADVICE_BEFORE_4_17 18

static volatile int hints;

/* mmap as a kernel answers that does not know the flag. */
static void map_at_hint(int number, siginfo_t *information, void *words) {
    (void)number, (void)information;
    ucontext_t *context = words;
    int kept = errno;
    void *address = mmap((void *)ARGUMENT(context, 0), ARGUMENT(context, 1), ARGUMENT(context, 2),
                         (int)ARGUMENT(context, 3) & ~NOREPLACE, -1, 0);
    ANSWER(context) = address == MAP_FAILED ? -errno : (intptr_t)address;
    errno = kept;
    hints++;
}

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define UNLESS(test, value, skipped) BPF_JUMP(BPF_JMP | test | BPF_K, value, 0, skipped)
#define REFUSE(error) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (error))

static void install(void) {
    struct sock_filter filter[] = {
        LOAD(nr),
        UNLESS(BPF_JEQ, SYS_membarrier, 1), REFUSE(ENOSYS),
        UNLESS(BPF_JEQ, SYS_mremap, 3), LOAD(args[3]), UNLESS(BPF_JSET, DONTUNMAP, 9), REFUSE(EINVAL),
        UNLESS(BPF_JEQ, SYS_madvise, 3), LOAD(args[2]), UNLESS(BPF_JGT, ADVICE_BEFORE_4_17, 5), REFUSE(EINVAL),
        UNLESS(BPF_JEQ, SYS_mmap, 3), LOAD(args[3]),
        UNLESS(BPF_JSET, NOREPLACE, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sigaction action = {.sa_sigaction = map_at_hint, .sa_flags = SA_SIGINFO | SA_NODEFER};
    CHECK(sigaction(SIGSYS, &action, NULL) == 0, "sigaction: errno %d", errno);
    install_filter(filter, COUNT_OF(filter));
}

/* Is the filter what it says? */
static void verify(void) {
    char *taken = mmap(NULL, 1 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *elsewhere = mmap(taken, 1 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | NOREPLACE, -1, 0);
    CHECK(elsewhere != MAP_FAILED && elsewhere != taken && hints == 1, "hint %p, got %p", (void *)taken, (void *)elsewhere);
    CHECK(mremap(taken, 1 * MIB, 1 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED | DONTUNMAP, elsewhere) == MAP_FAILED, "moved");
    CHECK(mremap(taken, 1 * MIB, 1 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere) == elsewhere, "errno %d", errno);
    munmap(elsewhere, 1 * MIB);
}

int main(void) {
    enum { BLOCKS = 4, STEPS = 9 };
    install();
    verify();
    for (int round = 0; round < 3; round++) {
        unsigned char *block[BLOCKS] = {0};
        for (size_t step = 0, before = 0, bytes = 128 * KIB; step < STEPS; step++, before = bytes, bytes = bytes * 2 - bytes / 4)
            for (int i = 0; i < BLOCKS; i++) {
                block[i] = realloc(block[i], bytes);
                CHECK(block[i] != NULL, "realloc to %zu failed", bytes);
                if (before != 0) CHECK_PATTERN(block[i], before, before, i);
                fill(block[i], bytes, i);
            }
        for (int i = 0; i < BLOCKS; i++) free(block[i]);
    }
    return 0;
}
