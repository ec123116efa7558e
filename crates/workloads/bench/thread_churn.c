/*
 * thread_churn: thousands of threads that live a moment, each allocating and freeing some blocks.
 *
 * Source: own, for programs that start a thread a request. What an allocator sets up for a thread at its first malloc
 * and tears down at its end is paid every time, and nothing may be left behind. A thread leaves its last blocks to the
 * thread that follows in its place, so some are freed after their thread is gone.
 *
 * Work: the threads are a total, THREADS alive at a time; the blocks are each thread's own. Live peak: the sum of the
 * places' own peaks, a bound.
 */
#include "workload.h"

enum { MAX_BLOCKS = 512, INHERITED = 8 };

static void *(*blocks)[MAX_BLOCKS];
static void *(*inherited)[INHERITED]; /* by place; NULL before the first thread and after the last */
static size_t thread_count, block_count;

static void drop_inherited(struct worker *self)
{
    for (int i = 0; i < INHERITED; i++)
        if (inherited[self->index][i] != NULL) {
            drop_block(self, inherited[self->index][i]);
            inherited[self->index][i] = NULL;
        }
}

static void body(struct worker *self)
{
    void **own = blocks[self->index];
    for (size_t i = 0; i < block_count; i++)
        own[i] = make_block(self, random_size(&self->random, 4, 12));
    for (size_t i = 0; i < block_count; i++)
        drop_block(self, own[i]);
    drop_inherited(self);
    if ((size_t)self->generation + 1 < part_of(thread_count, self))
        for (int i = 0; i < INHERITED; i++)
            inherited[self->index][i] = make_block(self, random_size(&self->random, 4, 12));
}

int main(int argc, char **argv)
{
    begin("thread_churn", argc, argv);
    thread_count = pick(15000, 28000) + (size_t)run.threads;
    block_count = pick(MAX_BLOCKS / 8, MAX_BLOCKS);
    blocks = map_array((size_t)run.threads, sizeof *blocks);
    inherited = map_array((size_t)run.threads, sizeof *inherited);
    run_generations(thread_count, body);
    return finish(sum_of_peaks());
}
