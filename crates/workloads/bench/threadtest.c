/*
 * threadtest: many objects of one size, each thread its own share; the first program of the Sun article.
 *
 * Source: threadtest of Hoard (Berger, McKinley, Blumofe, Wilson, ASPLOS 2000), as used in "A Comparison of Memory
 * Allocators in Multiprocessors" (Attardi, Nadgir, 2003). In every round each of t threads allocates n/t objects of
 * 64 bytes with a little arithmetic between them, then frees them all in the order of allocation.
 *
 * Work: the total, n objects a round, is divided among the threads. Live peak: n objects, exact when the threads reach
 * the end of a round together, else a bound.
 */
#include "workload.h"

enum { OBJECT_BYTES = 64, WORK_STEPS = 4 };

static void **objects;
static size_t object_count, rounds;

static void work(void)
{
    for (int step = 0; step < WORK_STEPS; step++)
        __asm__ volatile("");
}

static void body(struct worker *self)
{
    size_t begin = part_begin(object_count, self->index), end = part_end(object_count, self->index);
    for (size_t round = 0; round < rounds; round++) {
        for (size_t i = begin; i < end; i++) {
            objects[i] = make_block(self, OBJECT_BYTES);
            work();
        }
        for (size_t i = begin; i < end; i++) {
            drop_block(self, objects[i]);
            work();
        }
    }
}

int main(int argc, char **argv)
{
    begin("threadtest", argc, argv);
    object_count = pick(200000, 1600000);
    rounds = pick(180, 52);
    objects = map_array(object_count, sizeof *objects);
    run_threads(body);
    return finish(object_count * OBJECT_BYTES);
}
