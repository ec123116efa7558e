/* madvise that answers 0 and does nothing, as under qemu-user before 7.1: what calloc returns is zero all the same. */
#include "check.h"
#include "seccomp.h"

int main(void) {
    free(malloc(1));
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    install_filter(filter, COUNT_OF(filter));
    for (size_t bytes = 100000; bytes < 16 * MIB; bytes *= 2) {
        free(memset(malloc(bytes), 7, bytes));
        for (int i = 0; i < 5; i++) {
            unsigned char *block = calloc(1, bytes);
            size_t bad = first_nonzero(block, bytes);
            CHECK(bad == SIZE_MAX, "byte %zu of %zu is not zero", bad, bytes);
            free(memset(block, 9, bytes));
        }
    }
    return 0;
}
