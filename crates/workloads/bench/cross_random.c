/*
 * cross_random: all threads put new blocks into random slots of one array and free what they find there.
 *
 * Source: own; the worst case for allocators that keep blocks by thread, since a block is freed by any thread with
 * equal chance. A slot changes hands by one atomic exchange, so there is no lock but the allocator's. A slot's size is
 * fixed, 16 to 1,023 bytes.
 *
 * Work: the slots and the exchanges are totals; exchanges are divided among the threads. Live peak: all slots full and
 * the largest block in every thread's hands, a bound within 1 %.
 */
#include "workload.h"

static _Atomic(void *) *slots;
static size_t slot_count, exchanges;

static size_t size_of_slot(size_t slot)
{
    uint64_t random = seed_of(slot);
    return random_size(&random, 4, 10);
}

static void body(struct worker *self)
{
    size_t own_exchanges = part_of(exchanges, self);
    for (size_t i = 0; i < own_exchanges; i++) {
        size_t slot = random_below(&self->random, slot_count);
        void *block = make_block(self, size_of_slot(slot));
        /* ORDERING: Release publishes the block's content; Acquire reads what the thread wrote that put the other. */
        block = atomic_exchange_explicit(&slots[slot], block, memory_order_acq_rel);
        if (block != NULL)
            drop_block(self, block);
    }
}

int main(int argc, char **argv)
{
    begin("cross_random", argc, argv);
    slot_count = pick(30000, 240000);
    exchanges = pick(24000000, 18000000);
    slots = map_array(slot_count, sizeof *slots);
    run_threads(body);

    uint64_t live_peak_bytes = (uint64_t)run.threads * 1023;
    for (size_t slot = 0; slot < slot_count; slot++) {
        live_peak_bytes += size_of_slot(slot);
        if (slots[slot] != NULL)
            drop_block(&run.workers[0], slots[slot]);
    }
    return finish(live_peak_bytes);
}
