/*
 * cache_scratch: does memory freed by one thread, next to memory of another, come back to it (passive false sharing)?
 *
 * Source: cache-scratch of Hoard (Berger, McKinley, Blumofe, Wilson, ASPLOS 2000). The main thread allocates small
 * objects for all threads side by side and hands them out. Every thread frees those it was given; then, again and
 * again, it allocates as many, writes each many times and frees them. An allocator that gives a thread the pieces of
 * shared lines it freed makes every write a quarrel over the line.
 *
 * Work: the number of turns is a total, divided among the threads; the objects held at a time are each thread's own.
 * Live peak: the objects of all threads, exact: it is reached before the threads start.
 */
#include "false_sharing.h"
#include "workload.h"

static uint64_t **given; /* object i of thread t at i * threads + t: neighbours belong to different threads */
static size_t objects_at_once, turns;

static void free_object(struct worker *self, uint64_t *object, uint64_t expected)
{
    if (object[0] != expected)
        fail_check("object after its writes", expected, object[0]);
    self->written_sum += expected;
    self->read_sum += object[0];
    free(object);
    self->operations++;
}

static void body(struct worker *self)
{
    uint64_t *objects[64];
    for (size_t i = 0; i < objects_at_once; i++) {
        size_t number = i * (size_t)run.threads + (size_t)self->index;
        free_object(self, given[number], number);
    }
    size_t own_turns = part_of(turns, self);
    for (size_t turn = 0; turn < own_turns; turn++) {
        for (size_t i = 0; i < objects_at_once; i++) {
            objects[i] = allocate(OBJECT_BYTES);
            objects[i][0] = turn + i;
        }
        for (size_t i = 0; i < objects_at_once; i++)
            write_often(objects[i]);
        for (size_t i = 0; i < objects_at_once; i++)
            free_object(self, objects[i], turn + i + WRITES);
    }
}

int main(int argc, char **argv)
{
    begin("cache_scratch", argc, argv);
    objects_at_once = pick(4, 32);
    turns = pick(1000000, 500000);
    size_t object_count = objects_at_once * (size_t)run.threads;
    given = map_array(object_count, sizeof *given);
    for (size_t number = 0; number < object_count; number++) {
        given[number] = allocate(OBJECT_BYTES);
        given[number][0] = number;
    }
    run_threads(body);
    return finish(object_count * OBJECT_BYTES);
}
