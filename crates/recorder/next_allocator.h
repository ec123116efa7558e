/* The allocator that calls are passed on to: the next one that the loader finds, libc's or another preloaded one. */
#ifndef FAULTLESS_RECORDER_NEXT_ALLOCATOR_H
#define FAULTLESS_RECORDER_NEXT_ALLOCATOR_H

#include <stddef.h>
#include <stdint.h>

#include "attributes.h"

/* What dlsym itself asks for while we look for the next allocator comes from here. */
enum { BOOT_BYTES = 1 << 16 };

#pragma GCC visibility push(hidden)

/* NULL: not there. */
extern struct next_allocator {
    void *(*malloc)(size_t);
    void *(*calloc)(size_t, size_t);
    void *(*realloc)(void *, size_t);
    void (*free)(void *);
    int (*posix_memalign)(void **, size_t, size_t);
    void *(*aligned_alloc)(size_t, size_t);
    void *(*memalign)(size_t, size_t);
    void *(*valloc)(size_t);
    void *(*pvalloc)(size_t);
    void *(*mallocx)(size_t, int);
    void *(*rallocx)(void *, size_t, int);
    void (*dallocx)(void *, int);
    void (*sdallocx)(void *, size_t, int);
} next;

/* False only inside of itself: the caller then takes from `boot`. */
COLD int resolve(void);

extern uint8_t boot[BOOT_BYTES];
/* Reads as zero: nothing there is used twice. */
void *boot_allocate(size_t bytes);
size_t boot_bytes(const void *block);

#pragma GCC visibility pop

INLINE int has_next(void)
{
    return likely(next.malloc != NULL) || resolve();
}

INLINE int is_boot(const void *block)
{
    return (const uint8_t *)block < boot + BOOT_BYTES && (const uint8_t *)block >= boot;
}

#endif
