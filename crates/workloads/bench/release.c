/*
 * release: memory is freed, and the program makes no further call. Does it go back?
 *
 * Source: the first program of "Using a customized malloc on AIX 5.2 and 5.3" (2008), whose 128 MiB stayed resident for
 * ever. Variants: `block`, 128 MiB in one; `nodes`, 2,000,000 blocks of 64 bytes freed in random order; `survivors`, the
 * same with one in a thousand kept; `exit` and `sleep`, 16 bytes to 4 MiB mixed, from THREADS threads that end after
 * freeing, or sleep; random, blocks of drawn sizes, freed in random order.
 *
 * Work: once (small: a quarter of it). After the last free the process sleeps for a second, then rss_idle_kib is taken:
 * nothing calls malloc between. live_kib: what is still allocated then, in whole pages that hold some of it; parked:
 * threads that sleep. Live peak: exact, but a bound where threads work.
 */
#include "seed_case.h"

enum { NODE_BYTES = 64, KEEP_ONE_IN = 1000, MIXED_BLOCKS_MAX = 4000, DRAWN_MAX = 2000, IDLE_MS = 1000 };

static void **blocks;
static size_t block_count;
static size_t mixed_bytes; /* of one thread */
static pthread_barrier_t all_freed;

static void shuffle(void **items, size_t count, uint64_t *random)
{
    for (size_t i = count; i > 1; i--) {
        size_t other = random_below(random, i);
        void *item = items[other];
        items[other] = items[i - 1];
        items[i - 1] = item;
    }
}

/* A block with every page written. */
static void *make_resident(struct worker *self, size_t bytes)
{
    char *block = allocate(bytes);
    for (size_t offset = 0; offset < bytes; offset += PAGE_BYTES)
        block[offset] = 1;
    stamp(self, block, bytes);
    return block;
}

static void drop_all(struct worker *self, void **items, size_t count)
{
    for (size_t i = 0; i < count; i++)
        drop_block(self, items[i]);
}

static int by_address(const void *left, const void *right)
{
    uintptr_t a = *(const uintptr_t *)left, b = *(const uintptr_t *)right;
    return (a > b) - (a < b);
}

/* Pages that hold some of these small blocks. qsort may allocate: only after the figures are taken. */
static size_t pages_with(void **items, size_t count)
{
    qsort(items, count, sizeof *items, by_address);
    size_t pages = 0;
    uintptr_t next_page = 0; /* the first not yet counted */
    for (size_t i = 0; i < count; i++) {
        uintptr_t first = (uintptr_t)items[i] / PAGE_BYTES, last = ((uintptr_t)items[i] + NODE_BYTES - 1) / PAGE_BYTES;
        first = first < next_page ? next_page : first;
        if (last >= first) {
            pages += last - first + 1;
            next_page = last + 1;
        }
    }
    return pages;
}

static void one_block(struct worker *self)
{
    drop_block(self, make_resident(self, pick((size_t)32 << 20, (size_t)128 << 20)));
}

static void drawn_blocks(struct worker *self, uint64_t *random)
{
    size_t total = pick((size_t)256 << 20, (size_t)1 << 30);
    for (size_t bytes = 0; bytes < total && block_count < DRAWN_MAX;) {
        size_t drawn = draw_bytes(random);
        blocks[block_count++] = make_resident(self, drawn);
        bytes += drawn;
    }
    shuffle(blocks, block_count, random);
    drop_all(self, blocks, block_count);
}

/* All but `kept` of the nodes are freed; those come first in `blocks`. */
static void nodes(struct worker *self, size_t kept)
{
    for (size_t i = 0; i < block_count; i++)
        blocks[i] = make_block(self, NODE_BYTES);
    shuffle(blocks, block_count, &self->random);
    drop_all(self, blocks + kept, block_count - kept);
}

static void mixture(struct worker *self)
{
    void **own = blocks + (size_t)self->index * MIXED_BLOCKS_MAX;
    size_t count = 0;
    for (size_t bytes = 0; bytes < mixed_bytes && count < MIXED_BLOCKS_MAX; count++) {
        size_t size = random_size(&self->random, 4, 22);
        own[count] = make_resident(self, size);
        bytes += size;
    }
    shuffle(own, count, &self->random);
    drop_all(self, own, count);
    pthread_barrier_wait(&all_freed);
    if (self->index > 0 && variant_is("sleep"))
        sleeper_body(self);
}

int main(int argc, char **argv)
{
    begin_case("release", argc, argv);
    struct worker *self = &run.workers[0];
    uint64_t random = drawn_seed();
    bool has_threads = variant_is("exit") || variant_is("sleep");
    bool has_nodes = variant_is("nodes") || variant_is("survivors");
    size_t kept = 0;
    if (random == 0 && !has_threads && !has_nodes && !variant_is("block"))
        fail_variant("block, nodes, survivors, exit, sleep");
    if (has_nodes)
        block_count = pick(500000, 2000000);
    if (variant_is("survivors"))
        kept = block_count / KEEP_ONE_IN;
    size_t slots = has_threads ? (size_t)run.threads * MIXED_BLOCKS_MAX : DRAWN_MAX;
    blocks = map_array(slots > block_count ? slots : block_count, sizeof *blocks);
    mixed_bytes = pick((size_t)4 << 20, (size_t)16 << 20);
    sem_init(&sleepers_may_end, 0, 0);
    pthread_barrier_init(&all_freed, NULL, (unsigned)run.threads);

    record_start();
    double started_s = now_s();
    if (random != 0)
        drawn_blocks(self, &random);
    else if (has_nodes)
        nodes(self, kept);
    else if (has_threads) {
        start_others(mixture);
        mixture(self);
        if (variant_is("exit"))
            join_others();
    } else
        one_block(self);
    run.seconds = now_s() - started_s;
    record_idle(IDLE_MS);

    if (variant_is("sleep"))
        end_sleepers();
    mark("parked", variant_is("sleep") ? run.threads - 1 : 0);
    mark("live_kib", (double)(pages_with(blocks, kept) * PAGE_BYTES / 1024));
    drop_all(self, blocks, kept);
    return print_line(sum_of_peaks());
}
