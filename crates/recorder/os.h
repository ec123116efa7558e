/*
 * What is asked of the kernel: clocks, files, this process's numbers. By system calls where libc's functions might
 * allocate or be the program's own.
 */
#ifndef FAULTLESS_RECORDER_OS_H
#define FAULTLESS_RECORDER_OS_H

#include <stdint.h>

#pragma GCC visibility push(hidden)

uint64_t now_ns(void);
/* Of this thread, so that waiting for a processor is no cost of ours. */
uint64_t processor_ns(void);

uint32_t own_tid(void);
/* The inode of our PID namespace: process numbers of another namespace than the tool's are others to it. */
uint64_t own_namespace(void);

/* By `flags` of open(2); a descriptor that a program started by us does not get, or less than 0. */
int open_file(const char *path, int flags);
void close_file(int file);
/* False on a full disk: an answer here, and no signal when the room is used. */
int make_room(int file, uint64_t at, uint64_t bytes);
/* Copies a file; `to` gets its name when it is whole, and is called `unfinished` until then. */
void copy_file(const char *from, const char *unfinished, const char *to);

/* A file beyond the limit of its size (ulimit -f) ends a program by a signal; between these two our calls only fail. */
uint64_t hold_size_signal(void);
void release_size_signal(uint64_t before);

enum { STACK_BYTES = 4096 }; /* the most that is copied */

/* Copies so much of the stack as there is, whole words, by way of the kernel, which stops where nothing is mapped. */
uint64_t copy_stack(uint8_t *to, uint64_t sp, uint64_t bytes);

#pragma GCC visibility pop

#endif
