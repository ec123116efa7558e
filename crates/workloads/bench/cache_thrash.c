/*
 * cache_thrash: do two threads that allocate small objects get them in the same cache line (active false sharing)?
 *
 * Source: cache-thrash of Hoard (Berger, McKinley, Blumofe, Wilson, ASPLOS 2000). Every thread allocates a few small
 * objects, writes each of them many times, frees them, and begins again. An allocator that gives parts of one line to
 * different threads makes every write a quarrel over the line.
 *
 * Work: the number of turns is a total, divided among the threads; the objects held at a time are each thread's own.
 * Live peak: the objects of all threads, a bound.
 */
#include "false_sharing.h"
#include "workload.h"

static size_t objects_at_once, turns;

static void body(struct worker *self)
{
    uint64_t *objects[64];
    size_t own_turns = part_of(turns, self);
    for (size_t turn = 0; turn < own_turns; turn++) {
        for (size_t i = 0; i < objects_at_once; i++) {
            objects[i] = allocate(OBJECT_BYTES);
            objects[i][0] = turn + i;
        }
        for (size_t i = 0; i < objects_at_once; i++)
            write_often(objects[i]);
        for (size_t i = 0; i < objects_at_once; i++) {
            if (objects[i][0] != turn + i + WRITES)
                fail_check("object after its writes", turn + i + WRITES, objects[i][0]);
            self->written_sum += turn + i + WRITES;
            self->read_sum += objects[i][0];
            free(objects[i]);
            self->operations++;
        }
    }
}

int main(int argc, char **argv)
{
    begin("cache_thrash", argc, argv);
    objects_at_once = pick(4, 32);
    turns = pick(1000000, 500000);
    run_threads(body);
    return finish((uint64_t)run.threads * objects_at_once * OBJECT_BYTES);
}
