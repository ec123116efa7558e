/*
 * pareto: a working set of blocks whose sizes follow a Pareto law, replaced at random, every byte written.
 *
 * Source: the law that request sizes of real programs roughly follow, as in "Composing High-Performance Memory
 * Allocators" and other studies of traces (Berger, Zorn, McKinley, PLDI 2001; Wilson, Johnstone, Neely, Boles, IWMM
 * 1995). A size is 1 MiB / r for r uniform in 1 to 65,536: Pareto with exponent 1, from 16 bytes to 1 MiB, mean 187.
 *
 * Work: the blocks kept and the replacements are totals, divided among the threads. Live peak: the sum of the threads'
 * own peaks, a bound.
 */
#include "workload.h"

static void **blocks;
static size_t block_count, replacements;

static void *make_filled(struct worker *self)
{
    size_t bytes = ((size_t)1 << 20) / (1 + random_below(&self->random, 65536));
    void *block = allocate(bytes);
    memset(block, (int)bytes, bytes);
    stamp(self, block, bytes);
    return block;
}

static void body(struct worker *self)
{
    void **own = blocks + part_begin(block_count, self->index);
    size_t own_count = part_of(block_count, self), own_replacements = part_of(replacements, self);
    for (size_t i = 0; i < own_count; i++)
        own[i] = make_filled(self);
    for (size_t i = 0; i < own_replacements; i++) {
        size_t slot = random_below(&self->random, own_count);
        drop_block(self, own[slot]);
        own[slot] = make_filled(self);
    }
    for (size_t i = 0; i < own_count; i++)
        drop_block(self, own[i]);
}

int main(int argc, char **argv)
{
    begin("pareto", argc, argv);
    block_count = pick(50000, 400000);
    replacements = pick(20000000, 26000000);
    blocks = map_array(block_count, sizeof *blocks);
    run_threads(body);
    return finish(sum_of_peaks());
}
