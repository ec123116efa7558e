/* Counts what a call did. Every call is counted, exactly, by function and by power of two of the size. */
#ifndef FAULTLESS_RECORDER_COUNTING_H
#define FAULTLESS_RECORDER_COUNTING_H

#include <stddef.h>
#include <stdint.h>

#include "attributes.h"
#include "described.h"
#include "layout.h"
#include "remembered.h"
#include "rings.h"

#pragma GCC visibility push(hidden)

/* By threads that have no ring yet, or get none. */
COLD void allocated_without_ring(enum operation operation, size_t size, void *block);
COLD void freeing_without_ring(const void *block);

#pragma GCC visibility pop

INLINE void count_allocated(struct ring *ring, enum operation operation, size_t size, void *block)
{
    if (unlikely(block == NULL)) {
        ring->failed += size > 0;
        return;
    }
    unsigned class = size < 2 ? 0 : 63 - (unsigned)__builtin_clzll(size);
    struct counter *counter = &ring->counters[operation][class];
    counter->calls++;
    counter->bytes += size;
    if (unlikely(--ring->strata[class].countdown == 0))
        describe(ring, operation, size, block, class);
}

INLINE void allocated(enum operation operation, size_t size, void *block)
{
    struct ring *ring = own_ring();
    if (likely(ring != NULL))
        count_allocated(ring, operation, size, block);
    else
        allocated_without_ring(operation, size, block);
}

INLINE void count_freeing(struct ring *ring, const void *block)
{
    uint64_t id = forget(block);
    ring->frees++;
    if (unlikely(id))
        describe_free(ring, id, 0);
}

/* Before the block goes back: afterwards another thread may get it. */
static inline void freeing(const void *block)
{
    struct ring *ring = own_ring();
    if (likely(ring != NULL))
        count_freeing(ring, block);
    else
        freeing_without_ring(block);
}

/* Before a block may move; what it was remembered by, for `reallocated`. */
static inline uint64_t reallocating(const void *block)
{
    return block == NULL ? 0 : forget_anyway(block);
}

/* Afterwards: a refusal leaves the block where it was. Of no bytes it is a free. */
static inline void reallocated(const void *block, uint64_t id, size_t size, const void *moved)
{
    if (block == NULL || (unlikely(moved == NULL && size > 0) && (id == 0 || remember(block, id))))
        return;
    struct ring *ring = own_ring();
    if (ring == NULL)
        ring = asked_for_ring();
    if (ring && moved)
        ring->reallocated++;
    else if (ring && size == 0)
        ring->freed_by_realloc++;
    if (unlikely(id))
        describe_free(ring, id, 1);
    counted(ring);
}

#endif
