/*
 * sh6: groups of small blocks that live equally long, freed forwards or backwards.
 *
 * Source: sh6bench of MicroQuill (1990s), a mix of small sizes as seen by object-oriented programs, known from its
 * published description. A thread allocates groups of 50 blocks of one size of 16 to 1023 bytes. A quarter of the
 * groups is freed at once, in order of allocation or against it; the others are kept, and each frees the oldest group
 * kept in its stead. No block leaves its thread.
 *
 * Work: the groups kept and the groups made are totals, divided among the threads. Live peak: the sum of the threads'
 * own peaks, a bound.
 */
#include "workload.h"

enum { GROUP_BLOCKS = 50 };

struct group {
    void *blocks[GROUP_BLOCKS];
    bool is_full;
};

static struct group *groups;
static size_t groups_kept, groups_made;

static void fill(struct worker *self, struct group *group)
{
    size_t bytes = random_size(&self->random, 4, 10);
    for (int i = 0; i < GROUP_BLOCKS; i++)
        group->blocks[i] = make_block(self, bytes);
    group->is_full = true;
}

static void drop(struct worker *self, struct group *group)
{
    if (random_below(&self->random, 2) == 0)
        for (int i = 0; i < GROUP_BLOCKS; i++)
            drop_block(self, group->blocks[i]);
    else
        for (int i = GROUP_BLOCKS - 1; i >= 0; i--)
            drop_block(self, group->blocks[i]);
    group->is_full = false;
}

static void body(struct worker *self)
{
    struct group *own = groups + part_begin(groups_kept, self->index);
    size_t own_count = part_of(groups_kept, self), oldest = 0, own_made = part_of(groups_made, self);
    struct group passing;
    for (size_t made = 0; made < own_made; made++) {
        if (random_below(&self->random, 4) == 0) {
            fill(self, &passing);
            drop(self, &passing);
        } else {
            if (own[oldest].is_full)
                drop(self, &own[oldest]);
            fill(self, &own[oldest]);
            oldest = oldest + 1 < own_count ? oldest + 1 : 0;
        }
    }
    for (size_t i = 0; i < own_count; i++)
        if (own[i].is_full)
            drop(self, &own[i]);
}

int main(int argc, char **argv)
{
    begin("sh6", argc, argv);
    groups_kept = pick(600, 4800) + (size_t)run.threads;
    groups_made = pick(440000, 560000);
    groups = map_array(groups_kept, sizeof *groups);
    run_threads(body);
    return finish(sum_of_peaks());
}
