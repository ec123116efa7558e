/*
 * The recorder of `faultless churn --malloc`: a preload library that counts every call of malloc and its family, and
 * describes some of them, in a file that the tool reads meanwhile. This file has the functions that programs call.
 *
 * It forwards to the next allocator, takes no lock, allocates nothing and waits for nobody: where there is no room, it
 * drops the description of an allocation and counts that. A child of fork begins a file of its own.
 *
 * Each file uses those before it: attributes, layout, os, process_file, rings, remembered, described, counting;
 * next_allocator; recorder. deepbind stands by itself.
 */
#include <errno.h>
#include <string.h>

#include "attributes.h"
#include "counting.h"
#include "next_allocator.h"

/* Bytes of so many; more than there are where no number is large enough, which every allocator refuses. */
static inline size_t product(size_t number, size_t size)
{
    size_t bytes;
    return unlikely(__builtin_mul_overflow(number, size, &bytes)) ? SIZE_MAX : bytes;
}

API void *malloc(size_t size)
{
    if (!has_next())
        return boot_allocate(size);
    void *block = next.malloc(size);
    allocated(MALLOC, size, block);
    return block;
}

API void *calloc(size_t number, size_t size)
{
    size_t bytes = product(number, size);
    if (!has_next())
        return boot_allocate(bytes);
    void *block = next.calloc(number, size);
    allocated(CALLOC, bytes, block);
    return block;
}

API void free(void *block)
{
    if (block == NULL || unlikely(is_boot(block)) || !has_next())
        return;
    freeing(block);
    next.free(block);
}

/*
 * C23. To the next allocator they are frees: glibc's lead to whoever has the name `free`, which is us, so that one
 * would be counted twice if it were called by this name; others' do not.
 */
API void free_sized(void *block, size_t size)
{
    (void)size;
    free(block);
}

API void free_aligned_sized(void *block, size_t alignment, size_t size)
{
    (void)alignment;
    free_sized(block, size);
}

static void *moved_from_boot(void *block, size_t size)
{
    void *moved = malloc(size);
    size_t old = boot_bytes(block);
    if (moved)
        memcpy(moved, block, old < size ? old : size);
    return moved;
}

API void *realloc(void *block, size_t size)
{
    int has_allocator = has_next();
    if (unlikely(is_boot(block)))
        return moved_from_boot(block, size);
    if (!has_allocator)
        return boot_allocate(size);
    uint64_t id = reallocating(block);
    void *moved = next.realloc(block, size);
    reallocated(block, id, size, moved);
    allocated(REALLOC, size, moved);
    return moved;
}

API void *reallocarray(void *block, size_t number, size_t size)
{
    return realloc(block, product(number, size));
}

API int posix_memalign(void **result, size_t alignment, size_t size)
{
    if (!has_next())
        return ENOMEM;
    int answer = next.posix_memalign(result, alignment, size);
    allocated(ALIGNED, size, answer == 0 ? *result : NULL);
    return answer;
}

API void *aligned_alloc(size_t alignment, size_t size)
{
    if (!has_next())
        return NULL;
    void *block = next.aligned_alloc(alignment, size);
    allocated(ALIGNED, size, block);
    return block;
}

API void *memalign(size_t alignment, size_t size)
{
    if (!has_next())
        return NULL;
    void *block = next.memalign(alignment, size);
    allocated(ALIGNED, size, block);
    return block;
}

API void *valloc(size_t size)
{
    if (!has_next())
        return NULL;
    void *block = next.valloc(size);
    allocated(ALIGNED, size, block);
    return block;
}

API void *pvalloc(size_t size)
{
    if (!has_next())
        return NULL;
    void *block = next.pvalloc(size);
    allocated(ALIGNED, size, block);
    return block;
}

/*
 * jemalloc's own functions, by which BIND and Redis 8 allocate, too. Counted as what they do. A program may ask whether
 * they are there and find ours where there is no jemalloc: there is no memory then.
 */
API void *mallocx(size_t size, int flags)
{
    enum { LG_ALIGN = 63 };
    if (!has_next() || next.mallocx == NULL)
        return NULL;
    void *block = next.mallocx(size, flags);
    allocated(flags & LG_ALIGN ? ALIGNED : MALLOC, size, block);
    return block;
}

API void *rallocx(void *block, size_t size, int flags)
{
    if (!has_next() || next.rallocx == NULL)
        return NULL;
    uint64_t id = reallocating(block);
    void *moved = next.rallocx(block, size, flags);
    reallocated(block, id, size, moved);
    allocated(REALLOC, size, moved);
    return moved;
}

API void dallocx(void *block, int flags)
{
    if (!has_next() || next.dallocx == NULL)
        return;
    freeing(block);
    next.dallocx(block, flags);
}

API void sdallocx(void *block, size_t size, int flags)
{
    if (!has_next() || next.sdallocx == NULL)
        return;
    freeing(block);
    next.sdallocx(block, size, flags);
}
