/* A sandbox refuses madvise and lets pages be moved: what is known of free memory stays true, so that blocks that shrink behind what was
 * moved and freed end where they should. */
#include "seccomp.h"

static void move_and_shrink(bool shrinks) {
    char *block = malloc(16 * MIB), *behind = malloc(2 * MIB);
    memset(block, 1, 16 * MIB);
    memset(behind, 1, 2 * MIB);
    char *moved = realloc(block, 17 * MIB);
    CHECK(block != NULL && behind != NULL && moved != NULL, "no memory");
    CHECK(moved != block || !preloaded(), "it grew where it was");
    /* Its last 64 KiB at each place once. */
    for (size_t bytes = 17 * MIB; shrinks && bytes > MIB; bytes -= 64 * KIB) {
        CHECK(realloc(moved, bytes) == moved, "it shrank elsewhere");
        malloc_trim(0);
    }
    free(moved);
    free(behind);
    malloc_trim(0);
}

int main(int argc, char **argv) {
    if (argc == 1) {
        struct sock_filter filter[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
        install_filter(filter, COUNT_OF(filter));
        char *arguments[] = {argv[0], "again", NULL};
        execv(argv[0], arguments);
        CHECK(false, "exec: errno %d", errno);
    }
    for (int round = 0; round < 3; round++) move_and_shrink(round > 0);
    return 0;
}
