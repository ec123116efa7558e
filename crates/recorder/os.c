#define _GNU_SOURCE
#include "os.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "layout.h"

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

uint64_t now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

uint64_t processor_ns(void)
{
    return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

uint32_t own_tid(void)
{
    return (uint32_t)syscall(SYS_gettid);
}

uint64_t own_namespace(void)
{
    char name[32], *at = name;
    long length = syscall(SYS_readlinkat, AT_FDCWD, "/proc/self/ns/pid", name, sizeof name - 1);
    uint64_t number = 0;
    /* "pid:[4026531836]" */
    for (name[length < 0 ? 0 : length] = 0; *at; at++)
        number = *at >= '0' && *at <= '9' ? number * 10 + (uint64_t)(*at - '0') : number;
    return number;
}

int open_file(const char *path, int flags)
{
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0600);
}

void close_file(int file)
{
    if (file >= 0)
        syscall(SYS_close, file);
}

int make_room(int file, uint64_t at, uint64_t bytes)
{
    long answer;
    do
        answer = syscall(SYS_fallocate, file, 0, (off_t)at, (off_t)bytes);
    while (answer != 0 && errno == EINTR);
    return answer == 0;
}

void copy_file(const char *from_path, const char *unfinished, const char *to_path)
{
    char buffer[PAGE];
    int from = open_file(from_path, O_RDONLY);
    int to = open_file(unfinished, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW);
    long length = -1;
    while (from >= 0 && to >= 0 && (length = syscall(SYS_read, from, buffer, sizeof buffer)) > 0)
        if (syscall(SYS_write, to, buffer, length) != length)
            break;
    close_file(from);
    close_file(to);
    if (length == 0)
        syscall(SYS_renameat, AT_FDCWD, unfinished, AT_FDCWD, to_path);
}

static const uint64_t size_signal = 1ull << (SIGXFSZ - 1);

uint64_t hold_size_signal(void)
{
    uint64_t before = 0;
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, &size_signal, &before, sizeof before);
    return before;
}

void release_size_signal(uint64_t before)
{
    struct timespec no_time = {0, 0};
    if (!(before & size_signal))
        syscall(SYS_rt_sigtimedwait, &size_signal, NULL, &no_time, sizeof size_signal);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof before);
}

uint64_t copy_stack(uint8_t *to, uint64_t sp, uint64_t bytes)
{
    struct iovec local = {to, bytes}, remote[2 + STACK_BYTES / PAGE];
    unsigned pieces = 0;
    for (uint64_t at = sp, end = sp + bytes; at < end; pieces++) {
        uint64_t next = (at | (PAGE - 1)) + 1;
        next = next < end ? next : end;
        remote[pieces] = (struct iovec){(void *)at, next - at};
        at = next;
    }
    long copied = syscall(SYS_process_vm_readv, syscall(SYS_getpid), &local, 1, remote, pieces, 0);
    if (copied <= 0) {
        /* Forbidden here: the page that we stand on is there. */
        copied = (long)remote[0].iov_len;
        memcpy(to, (void *)sp, (size_t)copied);
    }
    return (uint64_t)copied & ~7ull;
}
