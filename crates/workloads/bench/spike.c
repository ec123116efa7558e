/*
 * spike: much memory at launch, all of it freed, then a long life of small work. How long does the launch stay resident?
 *
 * Source: the virtual machine of "Using a customized malloc on AIX 5.2 and 5.3" (2008), which analysed its code at launch
 * and never got that memory back to the system. 1 GiB: half in nodes of 64 to 1,023 bytes, half in blocks up to 1 MiB;
 * random: blocks of drawn sizes. Then blocks of 64 bytes, 256 bytes, 1 KiB and 4 KiB, 96 MiB of them, are replaced at
 * random, with short pauses, as a program does that answers requests.
 *
 * Work: small, a quarter of it for 2 s; large, for 10 s. rss_end_kib is at the end of the small work; live_kib what it
 * holds then, and lean_ms when resident memory first was at most 1.1 times that (-1: never). Live peak: exact.
 */
#include "seed_case.h"

enum { STEP_MS = 50, REPLACED_A_STEP = 2000, SIZES = 4, DRAWN_MAX = 8192 };

static const size_t sizes[SIZES] = {64, 256, 1024, 4096};
static void **launched, **kept;
static size_t kept_count;

static void launch(struct worker *self, size_t total, uint64_t *drawn)
{
    size_t count = 0, limit = total / 64;
    for (size_t bytes = 0; bytes < total && count < limit;) {
        size_t size = *drawn != 0              ? draw_bytes(drawn)
                      : bytes < total / 2 ? random_size(&self->random, 6, 10)
                                               : random_size(&self->random, 10, 20);
        char *block = allocate(size);
        for (size_t offset = 0; offset < size; offset += PAGE_BYTES)
            block[offset] = 1;
        stamp(self, block, size);
        launched[count++] = block;
        bytes += size;
    }
    for (size_t i = 0; i < count; i++)
        drop_block(self, launched[i]);
}

/* Replaces some blocks by others of the same size: what is live stays what it is. */
static void answer(struct worker *self)
{
    for (int i = 0; i < REPLACED_A_STEP; i++) {
        size_t slot = random_below(&self->random, kept_count);
        size_t bytes = stamped_bytes(kept[slot]);
        drop_block(self, kept[slot]);
        kept[slot] = make_block(self, bytes);
    }
}

int main(int argc, char **argv)
{
    begin_case("spike", argc, argv);
    struct worker *self = &run.workers[0];
    uint64_t random = drawn_seed();
    if (random == 0 && !variant_is("launch"))
        fail_variant("launch");
    size_t total = pick((size_t)256 << 20, (size_t)1 << 30), live = pick((size_t)24 << 20, (size_t)96 << 20);
    long lifetime_ms = (long)pick(2000, 10000), lean_ms = -1;
    launched = map_array(total / 64, sizeof *launched);
    kept = map_array(live / sizes[0], sizeof *kept);

    record_start();
    double started_s = now_s();
    launch(self, total, &random);
    double launched_s = now_s();
    for (size_t bytes = 0; bytes < live; bytes += sizes[kept_count++ % SIZES])
        kept[kept_count] = make_block(self, sizes[kept_count % SIZES]);
    int64_t live_bytes = self->live_bytes;
    for (long ms = 0; ms < lifetime_ms; ms = (long)((now_s() - launched_s) * 1e3)) {
        answer(self);
        long over_kib = resident_kib() - run.rss_start_kib;
        if (lean_ms < 0 && over_kib * 1024 <= live_bytes + live_bytes / 10)
            lean_ms = ms;
        sleep_ms(random != 0 ? draw_pause_ms(&random) / 10 : STEP_MS);
    }
    run.seconds = now_s() - started_s;
    record();
    mark("live_kib", (double)live_bytes / 1024.0);
    mark("lean_ms", (double)lean_ms);
    for (size_t i = 0; i < kept_count; i++)
        drop_block(self, kept[i]);
    return print_line((uint64_t)self->live_peak_bytes);
}
