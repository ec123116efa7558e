/*
 * phases: a program that fills its heap, uses it, frees all of it and idles, again and again.
 *
 * Source: own, for the question that "Using a customized malloc on AIX 5.2 and 5.3" (2008) leaves open: who gives memory
 * back after a phase must not pay for it in the next. Small blocks of 16 to 1,023 bytes. Variants: how long it idles
 * after each phase (0ms, 10ms, 1s, 5s); random: bytes of each phase and pauses are drawn.
 *
 * Work: ten phases of 512 MiB (small: four of 64 MiB) of the main thread; the other threads, if any, sleep. late_cpu_s:
 * processor time of a phase and its idle time, mean from the third on; first_idle_kib, late_idle_kib: resident at the end
 * of the first idle time, and at most from the third on. Live peak: exact.
 */
#include "seed_case.h"

enum { FEW_PHASES = 4, MANY_PHASES = 10, LATE = 2, MEAN_BYTES_AT_LEAST = 100 };

static void **blocks;

/* Allocates about `bytes`, reads all back, frees all. */
static void phase(struct worker *self, size_t bytes)
{
    size_t count = 0;
    for (size_t allocated = 0; allocated < bytes; count++) {
        size_t size = random_size(&self->random, 4, 10);
        blocks[count] = make_block(self, size);
        allocated += size;
    }
    for (size_t i = 0; i < count; i++)
        drop_block(self, blocks[i]);
}

static long pause_of_variant(void)
{
    static const struct {
        const char *name;
        long ms;
    } known[] = {{"0ms", 0}, {"10ms", 10}, {"1s", 1000}, {"5s", 5000}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (variant_is(known[i].name))
            return known[i].ms;
    fail_variant("0ms, 10ms, 1s, 5s");
}

int main(int argc, char **argv)
{
    begin_case("phases", argc, argv);
    struct worker *self = &run.workers[0];
    uint64_t random = drawn_seed();
    size_t bytes = pick((size_t)64 << 20, (size_t)512 << 20), largest = bytes;
    long pause_ms = random != 0 ? 0 : pause_of_variant(), rss_kib = 0, first_idle_kib = 0, late_idle_kib = 0;
    int phases = (int)pick(FEW_PHASES, MANY_PHASES);
    if (random != 0)
        largest = (size_t)LEAST_DRAWN_BYTES << MOST_DRAWN_POWER;
    blocks = map_array(largest / MEAN_BYTES_AT_LEAST, sizeof *blocks);

    record_start();
    start_sleepers();
    double started_s = now_s(), late_s = 0.0;
    for (int i = 0; i < phases; i++) {
        if (random != 0) {
            bytes = draw_bytes(&random);
            pause_ms = draw_pause_ms(&random);
            if (i == phases - 1 && pause_ms < 2 * PRICE_MS)
                pause_ms = 2 * PRICE_MS; /* one late idle time, at least, in which memory must go back */
        }
        double used_s = processor_s();
        phase(self, bytes);
        due_pages(pages_of(bytes));
        due_pause(pause_ms);
        sleep_ms(pause_ms);
        if (i >= LATE)
            late_s += processor_s() - used_s;
        rss_kib = resident_kib();
        if (i == 0)
            first_idle_kib = rss_kib;
        if (i >= LATE && rss_kib > late_idle_kib && (random == 0 || pause_ms >= 2 * PRICE_MS))
            late_idle_kib = rss_kib;
    }
    run.seconds = now_s() - started_s;
    mark("late_cpu_s", late_s / (phases - LATE));
    mark("first_idle_kib", (double)first_idle_kib);
    mark("late_idle_kib", (double)late_idle_kib);
    mark_due();
    record();
    end_sleepers();
    return print_line((uint64_t)self->live_peak_bytes);
}
