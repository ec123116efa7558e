/*
 * migrate: objects wander around a ring of threads; each thread frees some, replaces them, and passes the rest on.
 *
 * Source: own, for the pipelines and work-stealing programs in which an object is rarely freed where it was made, the
 * case that "remote free" lists were invented for. There are as many arrays as threads. In every round each thread
 * holds one array, frees a quarter of its objects, allocates others of random size in their places and touches the
 * rest; then all pass their array to the next thread.
 *
 * Work: the slots and the visits to them are totals, divided among the threads. Live peak: the sum of the arrays' own
 * peaks, a bound, and exact with one thread.
 */
#include "workload.h"

static void **slots;
static size_t slot_count, rounds;
static pthread_barrier_t round_end;

struct array_state {
    _Alignas(CACHE_LINE_PAIR) int64_t bytes, peak_bytes; /* Synchronization: the thread that holds the array */
};

static struct array_state *arrays;

static void *make_sized(struct worker *self, struct array_state *array)
{
    void *object = make_block(self, random_size(&self->random, 4, 10));
    array->bytes += (int64_t)stamped_bytes(object);
    if (array->bytes > array->peak_bytes)
        array->peak_bytes = array->bytes;
    return object;
}

static void drop_sized(struct worker *self, struct array_state *array, void *object)
{
    array->bytes -= (int64_t)stamped_bytes(object);
    drop_block(self, object);
}

static void visit(struct worker *self, int number)
{
    struct array_state *array = &arrays[number];
    for (size_t slot = part_begin(slot_count, number); slot < part_end(slot_count, number); slot++) {
        if (slots[slot] == NULL) {
            slots[slot] = make_sized(self, array);
        } else if (random_below(&self->random, 4) == 0) {
            drop_sized(self, array, slots[slot]);
            slots[slot] = make_sized(self, array);
        } else if (stamped_bytes(slots[slot]) < SMALLEST_BLOCK) {
            fail_check("length of a wandering object", SMALLEST_BLOCK, stamped_bytes(slots[slot]));
        }
    }
}

static void body(struct worker *self)
{
    for (size_t round = 0; round < rounds; round++) {
        visit(self, (int)(((size_t)self->index + round) % (size_t)run.threads));
        pthread_barrier_wait(&round_end);
    }
    int last = (int)(((size_t)self->index + rounds) % (size_t)run.threads);
    for (size_t slot = part_begin(slot_count, last); slot < part_end(slot_count, last); slot++)
        drop_sized(self, &arrays[last], slots[slot]);
}

int main(int argc, char **argv)
{
    begin("migrate", argc, argv);
    slot_count = pick(30000, 240000);
    rounds = pick(2400, 300);
    slots = map_array(slot_count, sizeof *slots);
    arrays = map_array((size_t)run.threads, sizeof *arrays);
    pthread_barrier_init(&round_end, NULL, (unsigned)run.threads);
    run_threads(body);

    uint64_t live_peak_bytes = 0;
    for (int i = 0; i < run.threads; i++)
        live_peak_bytes += (uint64_t)arrays[i].peak_bytes;
    return finish(live_peak_bytes);
}
