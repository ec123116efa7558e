/*
 * drawn: a program of which everything is drawn from a number: how large its blocks are, how many live, for how long,
 * what is written into them, which are zeroed or grow, and how many of them other threads free.
 *
 * Source: own; so that an allocator can be measured by programs that nobody made it for. VARIANT is the number.
 *
 * Sizes have one of five distributions, from 16 bytes to 4 MiB; all live blocks together are 16 KiB to 32 MiB, large
 * eight times as much. Each thread keeps its blocks in slots of its own: replaced at random, or the oldest first, or
 * pushed and popped in bursts like a stack, or all filled and all freed, or half of them freed at random and filled
 * again. Where blocks are shared, a part of those to be freed is laid into a place that all threads have, and what
 * lay there is freed instead. A program ends after some work, as it is guessed from its sizes; so it takes some
 * tenths of a second, large four times that.
 *
 * An operation is a malloc and free. Live peak: the sum of the threads' own peaks, and the largest block in every
 * shared place, a bound.
 */
#include "workload.h"

#include <math.h>

enum { SIZES = 1024, LARGEST = 4 << 20, WRITTEN_FIRST = 256, MOST_SLOTS = 2000000, SHARED_PLACES = 4096 };
enum distribution { FIXED, UNIFORM, BY_POWERS, PARETO, TWO, DISTRIBUTIONS };
enum lifetime { AT_RANDOM, OLDEST_FIRST, STACK, PHASES, HALVES, LIFETIMES };
enum written { ENDS, FIRST_BYTES, ALL, AMOUNTS };
enum { PARTS = 128 }; /* of which so many are shared, zeroed, grown */

static struct {
    uint32_t sizes[SIZES];
    size_t mean_bytes, largest_bytes, slots, operations; /* the last two for each thread */
    enum lifetime lifetime;
    enum written written;
    size_t shared, zeroed, grown, places;
} plan;

/* A thread's slots, and what they hold. */
struct slots {
    struct worker *self;
    void **blocks;
    int64_t held, peak;
};

static _Atomic(void *) *places;
static struct slots *of_threads;

/* From 0 up to, not including, 1. */
static double draw(uint64_t *drawn) { return (double)(next_random(drawn) >> 11) * 0x1p-53; }

static size_t drawn_size(uint64_t *drawn, enum distribution distribution, double low, double high)
{
    double at = draw(drawn), bytes = low;
    switch (distribution) {
    case UNIFORM: bytes = low + at * (high - low); break;
    case BY_POWERS: bytes = low * pow(high / low, at); break;
    case PARETO: bytes = fmin(low * pow(1 - at, -0.8), high * 16); break;
    case TWO: bytes = at < 0.8 ? low : high; break;
    default: break;
    }
    return (size_t)fmin(bytes, LARGEST);
}

/* What a malloc and free take at a guess, in ns: so that programs take equally long, more or less. */
static double guessed_ns(void)
{
    double mean = (double)plan.mean_bytes, ns = 60 + mean / 50;
    ns += plan.written == ALL ? mean / 16 : plan.written == FIRST_BYTES ? 10 : 0;
    ns += plan.zeroed > 0 ? mean / 20 : 0;
    return ns + (plan.shared > 0 ? 60 : 0);
}

static void draw_plan(uint64_t drawn)
{
    enum distribution distribution = (enum distribution)random_below(&drawn, DISTRIBUTIONS);
    double low = exp2(4 + 14 * draw(&drawn)), high = fmin(low * exp2(5 * draw(&drawn)), LARGEST);
    size_t all_bytes = 0;
    for (size_t i = 0; i < SIZES; i++) {
        size_t bytes = drawn_size(&drawn, distribution, low, high);
        plan.sizes[i] = (uint32_t)bytes;
        all_bytes += bytes;
        if (bytes > plan.largest_bytes)
            plan.largest_bytes = bytes;
    }
    plan.mean_bytes = all_bytes / SIZES;
    plan.lifetime = (enum lifetime)random_below(&drawn, LIFETIMES);
    plan.written = (enum written)random_below(&drawn, AMOUNTS);
    plan.shared = random_below(&drawn, 2) == 0 ? 1 + random_below(&drawn, 100) : 0;
    plan.zeroed = random_below(&drawn, 4) == 0 ? 20 + random_below(&drawn, 100) : 0;
    plan.grown = random_below(&drawn, 4) == 0 ? 1 + random_below(&drawn, 60) : 0;
    if (run.threads == 1)
        plan.shared = 0;

    size_t live_bytes = (size_t)exp2(14 + 11 * draw(&drawn)) * pick(1, 8);
    size_t slots = live_bytes / plan.mean_bytes / (size_t)run.threads;
    plan.slots = slots < 2 ? 2 : slots > MOST_SLOTS ? MOST_SLOTS : slots;
    plan.places = SHARED_PLACES;
    while (plan.places > 16 && plan.places * plan.mean_bytes > live_bytes)
        plan.places /= 2;
    size_t operations = (size_t)((double)pick(400000000, 1600000000) / guessed_ns()) / (size_t)run.threads;
    plan.operations = operations < 3 * plan.slots ? 3 * plan.slots : operations;
}

/* A block that grows by half is verified, and its first word must have come along. */
static void *grown(struct worker *self, void *block, size_t bytes)
{
    uint64_t before, after;
    memcpy(&before, block, sizeof before);
    verify(self, block);
    size_t more = bytes + bytes / 2;
    block = opaque(realloc(block, more));
    if (block == NULL)
        fail_memory(more);
    memcpy(&after, block, sizeof after);
    if (after != before)
        fail_check("first word of a block that grew", before, after);
    stamp(self, block, more);
    return block;
}

static void *make(struct worker *self)
{
    uint64_t random = next_random(&self->random);
    size_t bytes = plan.sizes[random % SIZES];
    bool is_zeroed = (random >> 16) % PARTS < plan.zeroed;
    char *block = is_zeroed ? opaque(calloc(1, bytes)) : allocate(bytes);
    if (block == NULL)
        fail_memory(bytes);
    if (is_zeroed && (block[0] | block[bytes / 2] | block[bytes - 1]) != 0)
        fail_check("a byte of a zeroed block", 0, 1);
    size_t written = plan.written == ALL ? bytes : plan.written == FIRST_BYTES ? WRITTEN_FIRST : 0;
    memset(block, 1, written < bytes ? written : bytes);
    stamp(self, block, bytes);
    return (random >> 24) % PARTS < plan.grown ? grown(self, block, bytes) : block;
}

/* Frees a block, or what lay in the shared place where it is laid now. */
static void drop(struct worker *self, void *block)
{
    if (random_below(&self->random, PARTS) < plan.shared) {
        size_t place = random_below(&self->random, plan.places);
        /* ORDERING: Release publishes the block's content; Acquire reads what the thread wrote that put the other. */
        block = atomic_exchange_explicit(&places[place], block, memory_order_acq_rel);
    }
    if (block != NULL)
        drop_block(self, block);
}

static void fill(struct slots *slots, size_t slot)
{
    slots->blocks[slot] = make(slots->self);
    slots->held += (int64_t)stamped_bytes(slots->blocks[slot]);
    if (slots->held > slots->peak)
        slots->peak = slots->held;
}

static void clear(struct slots *slots, size_t slot)
{
    if (slots->blocks[slot] == NULL)
        return;
    slots->held -= (int64_t)stamped_bytes(slots->blocks[slot]);
    drop(slots->self, slots->blocks[slot]);
    slots->blocks[slot] = NULL;
}

static void replace(struct slots *slots, size_t slot)
{
    clear(slots, slot);
    fill(slots, slot);
}

/* Pushes or pops some blocks, as there is room; returns how many that were. */
static size_t burst(struct slots *slots, size_t *top)
{
    uint64_t *random = &slots->self->random;
    size_t count = 1 + random_below(random, plan.slots / 2 + 1);
    bool pushes = *top + count <= plan.slots && (*top < count || random_below(random, 2) == 0);
    if (!pushes && count > *top)
        count = *top;
    for (size_t i = 0; i < count; i++) {
        if (pushes)
            fill(slots, (*top)++);
        else
            clear(slots, --*top);
    }
    return count;
}

static void body(struct worker *self)
{
    struct slots *slots = &of_threads[self->index];
    size_t top = 0;
    for (size_t done = 0, next = 0; done < plan.operations;) {
        switch (plan.lifetime) {
        case AT_RANDOM:
            replace(slots, random_below(&self->random, plan.slots));
            done++;
            break;
        case OLDEST_FIRST:
            replace(slots, next);
            next = next + 1 < plan.slots ? next + 1 : 0;
            done++;
            break;
        case STACK:
            done += burst(slots, &top) / 2 + 1;
            break;
        case PHASES:
            for (size_t slot = 0; slot < plan.slots; slot++)
                fill(slots, slot);
            for (size_t slot = 0; slot < plan.slots; slot++)
                clear(slots, slot);
            done += plan.slots;
            break;
        default:
            for (size_t slot = 0; slot < plan.slots; slot++)
                if (slots->blocks[slot] == NULL)
                    fill(slots, slot);
            for (size_t slot = 0; slot < plan.slots; slot++)
                if (random_below(&self->random, 2) == 0)
                    clear(slots, slot);
            done += plan.slots / 2 + 1;
        }
    }
    for (size_t slot = 0; slot < plan.slots; slot++)
        if (slots->blocks[slot] != NULL)
            drop_block(self, slots->blocks[slot]);
}

int main(int argc, char **argv)
{
    begin("drawn", argc, argv);
    draw_plan(seed_of((uint64_t)parse_number("VARIANT", run.variant, 0, INT32_MAX)));
    places = map_array(plan.places, sizeof *places);
    of_threads = map_array((size_t)run.threads, sizeof *of_threads);
    for (int i = 0; i < run.threads; i++)
        of_threads[i] = (struct slots){&run.workers[i], map_array(plan.slots, sizeof(void *)), 0, 0};
    run_threads(body);

    uint64_t live_peak_bytes = plan.shared > 0 ? plan.places * plan.largest_bytes : 0;
    for (size_t place = 0; place < plan.places; place++)
        if (places[place] != NULL)
            drop_block(&run.workers[0], places[place]);
    for (int i = 0; i < run.threads; i++)
        live_peak_bytes += (uint64_t)of_threads[i].peak;
    snprintf(run.marks, sizeof run.marks, " mean_bytes=%zu slots=%zu lifetime=%d written=%d shared=%zu zeroed=%zu grown=%zu",
             plan.mean_bytes, plan.slots, plan.lifetime, plan.written, plan.shared, plan.zeroed, plan.grown);
    return finish(live_peak_bytes);
}
