/* Puts the process under a filter of system calls, for good and for its children. */
#ifndef SECCOMP_H
#define SECCOMP_H
#include "check.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static inline void install_filter(struct sock_filter *filter, size_t count) {
    struct sock_fprog program = {(unsigned short)count, filter};
    /* Not by libc's function: an allocator may watch that, and do what it is not seen to do here. */
    CHECK(syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs: errno %d", errno);
    CHECK(syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, "seccomp: errno %d", errno);
}
#endif
