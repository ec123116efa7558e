/*
 * live_loop: 1,000 or 100,000 live blocks, replaced from the top like a stack and anywhere at random, by turns.
 *
 * Source: own; the two orders between which most programs lie, beside a heap that is not empty. Sizes are 16 to 511
 * bytes. In a turn a thread pops up to 64 blocks of its stack and pushes as many, then replaces 64 random ones.
 *
 * Work: the live blocks (1,000 small, 100,000 large) and the operations are totals, divided among the threads. Live
 * peak: the sum of the threads' own peaks, a bound.
 */
#include "workload.h"

enum { TURN = 64 };

static void **blocks;
static size_t block_count, turns;

static void *make(struct worker *self) { return make_block(self, random_size(&self->random, 4, 9)); }

static void body(struct worker *self)
{
    void **own = blocks + part_begin(block_count, self->index);
    size_t own_count = part_of(block_count, self), own_turns = part_of(turns, self);
    for (size_t i = 0; i < own_count; i++)
        own[i] = make(self);
    for (size_t turn = 0; turn < own_turns; turn++) {
        size_t depth = 1 + random_below(&self->random, own_count < TURN ? own_count : TURN);
        for (size_t i = 0; i < depth; i++)
            drop_block(self, own[own_count - 1 - i]);
        for (size_t i = depth; i-- > 0;)
            own[own_count - 1 - i] = make(self);
        for (int i = 0; i < TURN; i++) {
            size_t slot = random_below(&self->random, own_count);
            drop_block(self, own[slot]);
            own[slot] = make(self);
        }
    }
    for (size_t i = 0; i < own_count; i++)
        drop_block(self, own[i]);
}

int main(int argc, char **argv)
{
    begin("live_loop", argc, argv);
    block_count = pick(1000, 100000) + (size_t)run.threads;
    turns = pick(500000, 800000);
    blocks = map_array(block_count, sizeof *blocks);
    run_threads(body);
    return finish(sum_of_peaks());
}
