/*
 * slow_motion: fragmentation over time. Many small blocks, every second one freed, then bigger ones that do not fit
 * into the holes, phase after phase.
 *
 * Source: the slow-motion programs of "A Study in Malloc" (Ezolt, ALS 2001) for the question of what a heap looks like
 * between the steps, and the worst cases of "Bounds for Some Functions Concerning Dynamic Storage Allocation" (Robson,
 * JACM 1974) for the steps. Each phase allocates a list of blocks half as large again as those of the phase before, of
 * the same total, frees every second one of it, and frees every second one of what was left of all phases before.
 * After the last phase everything is freed, and a new cycle begins.
 *
 * Work: the bytes of a phase and the cycles: bytes are a total, divided among the threads. Live peak: the sum of the
 * threads' own peaks, a bound, for the threads may be in different phases.
 */
#include "workload.h"

enum { PHASES = 14, FIRST_BYTES = 16 };

struct list {
    void **blocks;
    size_t count;
};

static struct list (*lists_of_threads)[PHASES];
static size_t phase_bytes, cycles;

static size_t bytes_of_phase(int phase)
{
    size_t bytes = FIRST_BYTES;
    for (int i = 0; i < phase; i++)
        bytes += bytes / 2;
    return bytes;
}

static size_t blocks_of_phase(const struct worker *self, int phase)
{
    return part_of(phase_bytes, self) / bytes_of_phase(phase) + 1;
}

/* Frees the blocks at odd positions and closes the gaps of the list. */
static void drop_every_second(struct worker *self, struct list *list)
{
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i++)
        if (i % 2 == 0)
            list->blocks[kept++] = list->blocks[i];
        else
            drop_block(self, list->blocks[i]);
    list->count = kept;
}

static void body(struct worker *self)
{
    struct list *lists = lists_of_threads[self->index];
    for (size_t cycle = 0; cycle < cycles; cycle++) {
        for (int phase = 0; phase < PHASES; phase++) {
            struct list *list = &lists[phase];
            list->count = blocks_of_phase(self, phase);
            for (size_t i = 0; i < list->count; i++)
                list->blocks[i] = make_block(self, bytes_of_phase(phase));
            for (int earlier = 0; earlier <= phase; earlier++)
                drop_every_second(self, &lists[earlier]);
        }
        for (int phase = 0; phase < PHASES; phase++)
            for (size_t i = 0; i < lists[phase].count; i++)
                drop_block(self, lists[phase].blocks[i]);
    }
}

int main(int argc, char **argv)
{
    begin("slow_motion", argc, argv);
    phase_bytes = pick((size_t)4 << 20, (size_t)32 << 20);
    cycles = pick(28, 7);
    lists_of_threads = map_array((size_t)run.threads, sizeof *lists_of_threads);
    for (int i = 0; i < run.threads; i++)
        for (int phase = 0; phase < PHASES; phase++) {
            struct list *list = &lists_of_threads[i][phase];
            list->blocks = map_array(blocks_of_phase(&run.workers[i], phase), sizeof *list->blocks);
        }
    run_threads(body);
    return finish(sum_of_peaks());
}
