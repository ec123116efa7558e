/*
 * sh8: groups of blocks of short, middling and long life, some of which change hands between threads.
 *
 * Source: sh8bench of MicroQuill (1990s), the successor of sh6bench with blocks freed by other threads, known from its
 * published description. A thread keeps many groups of blocks. Half of the time it replaces one of the first sixteenth,
 * a quarter of the time one of the first quarter, a quarter of the time any of them. Before one
 * replacement in four it swaps the group for one of the same size out of a mailbox that all threads use, and frees what
 * another thread allocated: forwards, backwards, or every other block first.
 *
 * Work: the groups kept and the groups made are totals, divided among the threads. Live peak: the sum of the threads'
 * own peaks, a bound; swaps do not change it, for both groups have as many bytes.
 */
#include "workload.h"

enum { GROUP_BLOCKS = 32, SIZES = 32 };

struct group {
    void *blocks[GROUP_BLOCKS];
    int size; /* index of size_of */
    bool is_full;
};

static struct group *groups;                      /* those of the threads, then one for each mailbox */
static _Atomic(struct group *) mailboxes[SIZES]; /* never NULL while threads run */
static struct group **places;                     /* the groups that the threads hold now */
static size_t groups_kept, groups_made;

static size_t size_of(int size) { return (size_t)(16 + size * 8 + size * size * size / 16); } /* 16 to 2125 */

static void fill(struct worker *self, struct group *group, int size)
{
    for (int i = 0; i < GROUP_BLOCKS; i++)
        group->blocks[i] = make_block(self, size_of(size));
    group->size = size;
    group->is_full = true;
}

static void drop(struct worker *self, struct group *group)
{
    size_t order = random_below(&self->random, 3);
    for (int i = 0; i < GROUP_BLOCKS; i++) {
        int alternating = i < GROUP_BLOCKS / 2 ? i * 2 : i * 2 - GROUP_BLOCKS + 1;
        drop_block(self, group->blocks[order == 0 ? i : order == 1 ? GROUP_BLOCKS - 1 - i : alternating]);
    }
    group->is_full = false;
}

static size_t choose_place(struct worker *self, size_t count)
{
    size_t short_lived = count / 16 + 1, middling = count / 4 + 1;
    size_t lot = random_below(&self->random, 4);
    if (lot < 2)
        return random_below(&self->random, short_lived);
    if (lot == 2)
        return random_below(&self->random, middling);
    return random_below(&self->random, count);
}

static void body(struct worker *self)
{
    struct group **own = places + part_begin(groups_kept, self->index);
    size_t own_count = part_of(groups_kept, self), own_made = part_of(groups_made, self);
    for (size_t made = 0; made < own_made; made++) {
        struct group **place = &own[choose_place(self, own_count)];
        if ((*place)->is_full) {
            /* ORDERING: Release publishes the group given away, Acquire what its last holder wrote into the other. */
            if (random_below(&self->random, 4) == 0)
                *place = atomic_exchange_explicit(&mailboxes[(*place)->size], *place, memory_order_acq_rel);
            drop(self, *place);
        }
        /* Small sizes more often: the lesser of two draws. */
        size_t a = random_below(&self->random, SIZES), b = random_below(&self->random, SIZES);
        fill(self, *place, (int)(a < b ? a : b));
    }
    for (size_t i = 0; i < own_count; i++)
        if (own[i]->is_full)
            drop(self, own[i]);
}

int main(int argc, char **argv)
{
    begin("sh8", argc, argv);
    groups_kept = pick(600, 4800) + (size_t)run.threads;
    groups_made = pick(350000, 800000);
    groups = map_array(groups_kept + SIZES, sizeof *groups);
    places = map_array(groups_kept, sizeof *places);
    for (size_t i = 0; i < groups_kept; i++)
        places[i] = &groups[i];
    for (int size = 0; size < SIZES; size++) {
        fill(&run.workers[0], &groups[groups_kept + (size_t)size], size);
        mailboxes[size] = &groups[groups_kept + (size_t)size];
    }
    run_threads(body);
    for (int size = 0; size < SIZES; size++)
        drop(&run.workers[0], mailboxes[size]);
    return finish(sum_of_peaks());
}
