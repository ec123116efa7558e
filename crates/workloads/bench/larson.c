/*
 * larson: a server whose threads replace random blocks and hand them on to the threads that come after them.
 *
 * Source: "Memory Allocation for Long-Running Server Applications" (Larson, Krishnan, ISMM 1998). Every place of the
 * server has an array of blocks. A thread replaces random blocks of its array by new ones of random size, then ends; a
 * new thread takes the array over, so most of what it frees was allocated by threads that are gone.
 *
 * Work: the arrays, the replacements and the number of threads are totals, divided among THREADS places. Live peak: the
 * sum of the places' own peaks, a bound within 1 % or so, for they need not fall together.
 */
#include "workload.h"

enum { REPLACEMENTS_A_THREAD = 10000 };

static void **blocks;
static size_t block_count, thread_count;

static size_t server_size(struct worker *self) { return 16 + random_below(&self->random, 1009 - 16); }

static void body(struct worker *self)
{
    void **own = blocks + part_begin(block_count, self->index);
    size_t own_count = part_of(block_count, self);
    if (self->generation == 0)
        for (size_t i = 0; i < own_count; i++)
            own[i] = make_block(self, server_size(self));
    for (int i = 0; i < REPLACEMENTS_A_THREAD; i++) {
        size_t slot = random_below(&self->random, own_count);
        drop_block(self, own[slot]);
        own[slot] = make_block(self, server_size(self));
    }
    if ((size_t)self->generation + 1 == part_of(thread_count, self))
        for (size_t i = 0; i < own_count; i++)
            drop_block(self, own[i]);
}

int main(int argc, char **argv)
{
    begin("larson", argc, argv);
    block_count = pick(20000, 160000) + (size_t)run.threads;
    thread_count = pick(1300, 1500) + (size_t)run.threads;
    blocks = map_array(block_count, sizeof *blocks);
    run_generations(thread_count, body);
    return finish(sum_of_peaks());
}
