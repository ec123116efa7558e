/*
 * simple_loop: malloc and free of small blocks in the tightest loop, the fast path and nothing else.
 *
 * Source: own; the first program anybody writes against an allocator. Half of the operations are of one size of 64
 * bytes, half go through six sizes in turn. `small` holds one block at a time, `large` holds the last eight.
 *
 * Work: the operations are a total, divided among the threads. Live peak: the blocks held by all threads, a bound.
 */
#include "workload.h"

enum { MAX_HELD = 8, ONE_SIZE = 64, SIZES = 6 };

static const size_t sizes[SIZES] = {16, 40, 72, 136, 264, 1000};
static size_t operations, held;

static uint64_t *make(struct worker *self, size_t bytes, size_t number)
{
    uint64_t *block = allocate(bytes);
    *block = number;
    self->written_sum += number;
    return opaque(block);
}

static void drop(struct worker *self, uint64_t *block, size_t expected)
{
    if (*block != expected)
        fail_check("first word of a block", expected, *block);
    self->read_sum += *block;
    free(block);
    self->operations++;
}

static void loop(struct worker *self, size_t count, size_t size_count, const size_t *bytes)
{
    uint64_t *blocks[MAX_HELD];
    size_t size = 0;
    for (size_t i = 0; i < count; i++) {
        if (i >= held)
            drop(self, blocks[i % held], i - held);
        blocks[i % held] = make(self, bytes[size], i);
        size = size + 1 < size_count ? size + 1 : 0;
    }
    for (size_t i = count - held; i < count; i++)
        drop(self, blocks[i % held], i);
}

static void body(struct worker *self)
{
    size_t one_size = ONE_SIZE, half = part_of(operations / 2, self);
    loop(self, half, 1, &one_size);
    loop(self, half, SIZES, sizes);
}

int main(int argc, char **argv)
{
    begin("simple_loop", argc, argv);
    operations = pick(120000000, 440000000);
    held = pick(1, MAX_HELD);
    run_threads(body);
    return finish((uint64_t)run.threads * held * sizes[SIZES - 1]);
}
