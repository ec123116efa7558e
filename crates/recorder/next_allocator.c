#define _GNU_SOURCE
#include "next_allocator.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>

/* The oldest version of each symbol, so that an old glibc can load us. */
#ifdef __x86_64__
__asm__(".symver dlsym,dlsym@GLIBC_2.2.5");
#pragma weak dlsym
#endif

struct next_allocator next;
_Alignas(16) uint8_t boot[BOOT_BYTES];

static _Atomic size_t boot_used;
static _Atomic int is_resolving;

COLD int resolve(void)
{
    if (atomic_exchange(&is_resolving, 1))
        return next.malloc != NULL;
    next.calloc = dlsym(RTLD_NEXT, "calloc");
    next.realloc = dlsym(RTLD_NEXT, "realloc");
    next.free = dlsym(RTLD_NEXT, "free");
    next.posix_memalign = dlsym(RTLD_NEXT, "posix_memalign");
    next.aligned_alloc = dlsym(RTLD_NEXT, "aligned_alloc");
    next.memalign = dlsym(RTLD_NEXT, "memalign");
    next.valloc = dlsym(RTLD_NEXT, "valloc");
    next.pvalloc = dlsym(RTLD_NEXT, "pvalloc");
    next.mallocx = dlsym(RTLD_NEXT, "mallocx");
    next.rallocx = dlsym(RTLD_NEXT, "rallocx");
    next.dallocx = dlsym(RTLD_NEXT, "dallocx");
    next.sdallocx = dlsym(RTLD_NEXT, "sdallocx");
    /* The last: where it is there all are. */
    next.malloc = dlsym(RTLD_NEXT, "malloc");
    return next.malloc != NULL;
}

/* The size stands before the block. */
void *boot_allocate(size_t bytes)
{
    size_t room = (bytes + 31) & ~(size_t)15;
    size_t at = atomic_fetch_add_explicit(&boot_used, room, memory_order_relaxed);
    if (room < bytes || at + room > BOOT_BYTES) {
        errno = ENOMEM;
        return NULL;
    }
    *(size_t *)(boot + at) = bytes;
    return boot + at + 16;
}

size_t boot_bytes(const void *block)
{
    return *(const size_t *)((const uint8_t *)block - 16);
}
