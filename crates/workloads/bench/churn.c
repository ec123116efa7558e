/*
 * churn: malloc, touch every page, free, again and again. Does the next block find the pages of the last one?
 *
 * Source: the loops of "A Study in Malloc" (Ezolt, ALS 2001), in which a block of 127 KiB takes no fault and one of
 * 128 KiB takes 32 at each turn. Variants: one size (64K, 126K, ... 64M); `two`, 128 KiB and 4 MiB by turns; `three`,
 * 64 KiB, 1 MiB and 31 MiB by turns; random, a size for each of some bursts with pauses between.
 *
 * Work: every thread holds one block at a time and does the same; bytes touched are a total, but never less than twelve
 * turns, and eight times as many for blocks of less than 4 MiB: their turns would take a millisecond or two, no more than
 * starting the threads. Live peak: the largest block times the threads, a bound. due_pages are those of that live set, for each stretch
 * between pauses of PRICE_MS or more. cpu_s: processor time of the turns, without the start of the process, which takes
 * as long as some of them.
 */
#include "seed_case.h"

enum { MAX_BURSTS = 10, LEAST_TURNS = 12, LEAST_RANDOM_TURNS = 4, BURSTS_SMALL = 4 };

struct burst {
    size_t sizes[3];
    size_t size_count, turns;
    long pause_ms; /* before it */
};

static struct burst bursts[MAX_BURSTS];
static size_t burst_count, largest_bytes;

static const struct {
    const char *name;
    size_t kib[3];
} variants[] = {
    {"64K", {64}},     {"126K", {126}},   {"127K", {127}},        {"128K", {128}},          {"129K", {129}},
    {"135K", {135}},   {"256K", {256}},   {"1M", {1 << 10}},      {"4M", {4 << 10}},        {"8M", {8 << 10}},
    {"31M", {31 << 10}}, {"33M", {33 << 10}}, {"64M", {64 << 10}}, {"two", {128, 4 << 10}}, {"three", {64, 1 << 10, 31 << 10}},
};

static size_t largest_of(const struct burst *burst)
{
    size_t bytes = 0;
    for (size_t i = 0; i < burst->size_count; i++)
        if (burst->sizes[i] > bytes)
            bytes = burst->sizes[i];
    return bytes;
}

/* As many turns as touch `total` bytes, of all threads and sizes together. */
static void set_turns(struct burst *burst, size_t total, size_t least)
{
    size_t bytes = 0;
    for (size_t i = 0; i < burst->size_count; i++)
        bytes += burst->sizes[i];
    size_t turns = total / (bytes * (size_t)run.threads) * burst->size_count;
    burst->turns = turns > least ? turns : least;
}

static void plan(void)
{
    uint64_t random = drawn_seed();
    if (random != 0) {
        burst_count = pick(BURSTS_SMALL, MAX_BURSTS);
        for (size_t i = 0; i < burst_count; i++) {
            bursts[i].pause_ms = i > 0 ? draw_pause_ms(&random) : 0;
            bursts[i].sizes[0] = draw_bytes(&random);
            bursts[i].size_count = 1;
            set_turns(&bursts[i], pick((size_t)256 << 20, (size_t)1 << 30), LEAST_RANDOM_TURNS);
        }
        return;
    }
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++)
        if (variant_is(variants[i].name)) {
            while (bursts[0].size_count < 3 && variants[i].kib[bursts[0].size_count] > 0) {
                bursts[0].sizes[bursts[0].size_count] = variants[i].kib[bursts[0].size_count] << 10;
                bursts[0].size_count++;
            }
            size_t total = pick((size_t)1 << 30, (size_t)8 << 30);
            set_turns(&bursts[0], largest_of(&bursts[0]) < (size_t)4 << 20 ? 8 * total : total, LEAST_TURNS);
            burst_count = 1;
            return;
        }
    fail_variant("64K, 126K, 127K, 128K, 129K, 135K, 256K, 1M, 4M, 8M, 31M, 33M, 64M, two, three");
}

static void body(struct worker *self)
{
    for (size_t i = 0; i < burst_count; i++) {
        sleep_ms(bursts[i].pause_ms);
        for (size_t turn = 0; turn < bursts[i].turns; turn++) {
            size_t bytes = bursts[i].sizes[turn % bursts[i].size_count];
            char *block = allocate(bytes);
            touch_pages(self, block, bytes);
            free(block);
            self->operations++;
        }
    }
}

int main(int argc, char **argv)
{
    begin_case("churn", argc, argv);
    plan();
    for (size_t i = 0; i < burst_count; i++) {
        due_pause(bursts[i].pause_ms);
        due_pages(pages_of(largest_of(&bursts[i])) * (size_t)run.threads);
        if (largest_of(&bursts[i]) > largest_bytes)
            largest_bytes = largest_of(&bursts[i]);
    }
    mark_due();
    record_start();
    struct begun begun = begin_work();
    start_others(body);
    body(&run.workers[0]);
    join_others();
    end_work(begun);
    record();
    return print_line(largest_bytes * (size_t)run.threads);
}
