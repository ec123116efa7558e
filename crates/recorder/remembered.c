#include "remembered.h"

/* Room in the file for so many places of `spill`. Two threads may make the same room: that is harmless. */
static int make_spill_room(struct own *mine, uint64_t places)
{
    uint64_t roomy = atomic_load(&mine->roomy), wanted = (places + SPILL_STEP - 1) / SPILL_STEP * SPILL_STEP;
    if (roomy < wanted && !make_room_in_file(SPILL_AT + roomy * sizeof(struct spilled),
                                             (wanted - roomy) * sizeof(struct spilled)))
        return 0;
    while (roomy < wanted && !atomic_compare_exchange_weak(&mine->roomy, &roomy, wanted)) {
    }
    return 1;
}

/*
 * Keeps a place for the free of a block. What is reserved and what the tool has not read are never more than all
 * places: who spills moves the head on before it gives its reservation back, and here the reservations are read first.
 */
static int reserve_spill(struct own *mine)
{
    uint64_t reserved = atomic_fetch_add(&mine->reserved, 1) + 1;
    uint64_t head = atomic_load(&mine->head->spill_head), tail = atomic_load(&mine->head->spill_tail);
    uint64_t reach = head + reserved < SPILL_PLACES ? head + reserved : SPILL_PLACES;
    if (head - tail + reserved <= SPILL_PLACES &&
        (reach <= atomic_load(&mine->roomy) || make_spill_room(mine, reach)))
        return 1;
    give_up_room(mine);
    return 0;
}

void give_up_room(struct own *mine)
{
    atomic_fetch_sub(&mine->reserved, 1);
}

void spill(struct own *mine, const struct freed *freed)
{
    uint64_t place = atomic_fetch_add(&mine->head->spill_head, 1);
    struct spilled *to = &mine->spill[place & (SPILL_PLACES - 1)];
    to->time_ns = freed->time_ns;
    to->id = freed->id;
    to->tid = freed->tid;
    atomic_store_explicit(&to->written, (place + 1) << 1 | freed->is_by_realloc, memory_order_release);
}

int remember(const void *block, uint64_t id)
{
    struct tracked *bucket = bucket_of(own, block);
    for (int way = 0; way < WAYS; way++) {
        uintptr_t nothing = 0;
        if (bucket[way].address == 0 && atomic_compare_exchange_strong(&bucket[way].address, &nothing, 1)) {
            bucket[way].id = id;
            atomic_store_explicit(&bucket[way].address, (uintptr_t)block, memory_order_release);
            return 1;
        }
    }
    return 0;
}

int track(const void *block, uint64_t id)
{
    if (reserve_spill(own)) {
        if (remember(block, id))
            return 1;
        give_up_room(own);
    }
    atomic_fetch_add_explicit(&own->head->untracked, 1, memory_order_relaxed);
    return 0;
}
