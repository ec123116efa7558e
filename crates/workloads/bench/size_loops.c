/*
 * size_loops: malloc, one byte touched, free, over and over, for every size from 16 bytes to 4 MiB and its neighbours.
 *
 * Source: the loops of "A Study in Malloc: A Case of Excessive Minor Faults" (Ezolt, ALS 2001), which found glibc's
 * faults between 126 and 128 KiB. The sizes are the powers of two, one byte less and one more, and 126 and 127 KiB.
 * `small` holds one block at a time, `large` holds the last eight.
 *
 * Work: the rounds of each size are a total, divided among the threads; sizes above 32 KiB, each of which may cost two
 * system calls and a fault, have a fiftieth of the rounds. Live peak: the blocks of the largest size held
 * by all threads, a bound.
 */
#include "workload.h"

enum { LOW_POWER = 4, HIGH_POWER = 22, MAX_HELD = 8, SMALL_BYTES = 32 << 10, LARGE_SHARE = 50 };

static size_t rounds, held;

static void drop(struct worker *self, unsigned char *block, unsigned char expected)
{
    if (*block != expected)
        fail_check("first byte of a block", expected, *block);
    self->written_sum += expected;
    self->read_sum += *block;
    free(block);
    self->operations++;
}

static void loop(struct worker *self, size_t bytes)
{
    unsigned char *blocks[MAX_HELD];
    size_t own_rounds = part_of(bytes <= SMALL_BYTES ? rounds : rounds / LARGE_SHARE, self);
    for (size_t round = 0; round < own_rounds; round++) {
        if (round >= held)
            drop(self, blocks[round % held], (unsigned char)(round - held));
        blocks[round % held] = allocate(bytes);
        *blocks[round % held] = (unsigned char)round;
    }
    for (size_t round = own_rounds > held ? own_rounds - held : 0; round < own_rounds; round++)
        drop(self, blocks[round % held], (unsigned char)round);
}

static void body(struct worker *self)
{
    for (int power = LOW_POWER; power <= HIGH_POWER; power++)
        for (int neighbour = -1; neighbour <= 1; neighbour++)
            loop(self, ((size_t)1 << power) + (size_t)neighbour);
    loop(self, (size_t)126 << 10);
    loop(self, (size_t)127 << 10);
}

int main(int argc, char **argv)
{
    begin("size_loops", argc, argv);
    rounds = pick(1000000, 4000000);
    held = pick(1, MAX_HELD);
    run_threads(body);
    return finish((uint64_t)run.threads * held * (((uint64_t)1 << HIGH_POWER) + 1));
}
