/*
 * Blocks whose allocation was described, until they are freed, by whichever thread: only one is remembered for whose
 * free there is room, so that no free is ever dropped and taken for a block that lives.
 */
#ifndef FAULTLESS_RECORDER_REMEMBERED_H
#define FAULTLESS_RECORDER_REMEMBERED_H

#include <stdint.h>

#include "attributes.h"
#include "layout.h"
#include "process_file.h"

#pragma GCC visibility push(hidden)

/* Remembers a block, and keeps room for its free; false, and counted, where either has no place. */
int track(const void *block, uint64_t id);
/* Remembers one that was forgotten and not freed: its room is still kept. False where its bucket is full. */
int remember(const void *block, uint64_t id);

/* The free of a block that was remembered. */
struct freed {
    uint64_t time_ns, id, tid, is_by_realloc;
};

/* Writes it into the room that was kept for it; `give_up_room` must follow. */
void spill(struct own *mine, const struct freed *freed);
/* The free was written, wherever. */
void give_up_room(struct own *mine);

#pragma GCC visibility pop

INLINE struct tracked *bucket_of(const struct own *mine, const void *block)
{
    _Static_assert(TRACKED_BUCKETS == 1 << 15, "the hash has 15 bits");
    return mine->tracked[((uintptr_t)block >> 4) * 0x9e3779b97f4a7c15u >> (64 - 15)];
}

/* The number of a block that was remembered, which it is no more; else 0. */
INLINE uint64_t forget(const void *block)
{
    struct tracked *bucket = bucket_of(own, block);
    for (int way = 0; way < WAYS; way++)
        if (unlikely(atomic_load_explicit(&bucket[way].address, memory_order_acquire) == (uintptr_t)block)) {
            uint64_t id = bucket[way].id;
            atomic_store_explicit(&bucket[way].address, 0, memory_order_release);
            return id;
        }
    return 0;
}

/* The same by a thread that may have no ring: it may free what others allocated. */
static inline uint64_t forget_anyway(const void *block)
{
    return has_file(own) ? forget(block) : 0;
}

#endif
