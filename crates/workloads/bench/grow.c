/*
 * grow: an array that realloc makes longer by 1 MiB at a time, up to 2 GiB. Is it copied, is what was never touched made
 * resident?
 *
 * Source: own, for vectors and buffers that grow with what is read. After each step its last page is written. Variants:
 * `one` array; `two` that grow in turn, so that each stands in the other's way; random, drawn steps, pauses now and then.
 *
 * Work: to 256 MiB or 2 GiB for each array. Every page written is read back at the end. touched_kib: those pages. cpu_s:
 * processor time of the growing. Live peak: the bytes asked for at the end, exact.
 */
#include "seed_case.h"

enum { ARRAYS = 2, STEP_BYTES = 1 << 20, PAUSE_ONE_IN = 64, MAX_STEPS = 65536 };

static struct array {
    char *start;
    size_t bytes;
    uint32_t *touched; /* pages, in order */
    size_t touched_count;
} arrays[ARRAYS];

static void grow(struct worker *self, struct array *array, size_t step)
{
    array->bytes += step;
    char *grown = opaque(realloc(array->start, array->bytes));
    if (grown == NULL)
        fail_memory(array->bytes);
    array->start = grown;
    size_t page = array->bytes / PAGE_BYTES - 1;
    uint64_t word = mix(page);
    memcpy(grown + page * PAGE_BYTES, &word, sizeof word);
    self->written_sum += word;
    array->touched[array->touched_count++] = (uint32_t)page;
    self->operations++;
}

static void read_back(struct worker *self, const struct array *array)
{
    for (size_t i = 0; i < array->touched_count; i++) {
        uint64_t word;
        memcpy(&word, array->start + (size_t)array->touched[i] * PAGE_BYTES, sizeof word);
        self->read_sum += word;
    }
}

int main(int argc, char **argv)
{
    begin_case("grow", argc, argv);
    struct worker *self = &run.workers[0];
    uint64_t drawn = drawn_seed();
    if (drawn == 0 && !variant_is("one") && !variant_is("two"))
        fail_variant("one, two");
    int count = variant_is("one") ? 1 : ARRAYS;
    size_t end_bytes = pick((size_t)256 << 20, (size_t)2 << 30), touched = 0;
    for (int i = 0; i < count; i++)
        arrays[i].touched = map_array(MAX_STEPS, sizeof *arrays[i].touched);

    record_start();
    struct begun begun = begin_work();
    for (size_t steps = 0; arrays[count - 1].bytes < end_bytes && steps < MAX_STEPS; steps++) {
        size_t step = drawn != 0 ? draw_bytes(&drawn) / 16 / PAGE_BYTES * PAGE_BYTES + PAGE_BYTES : STEP_BYTES;
        for (int i = 0; i < count; i++)
            grow(self, &arrays[i], step);
        if (drawn != 0 && random_below(&drawn, PAUSE_ONE_IN) == 0)
            sleep_ms(draw_pause_ms(&drawn));
    }
    end_work(begun);
    mark("top_kib", (double)resident_kib());
    uint64_t live_bytes = 0;
    for (int i = 0; i < count; i++) {
        read_back(self, &arrays[i]);
        touched += arrays[i].touched_count;
        live_bytes += arrays[i].bytes;
    }
    mark("touched_kib", (double)(touched * PAGE_BYTES / 1024));
    record();
    for (int i = 0; i < count; i++)
        free(arrays[i].start);
    return print_line(live_bytes);
}
