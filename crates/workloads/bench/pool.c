/*
 * pool: a pool of threads works in bursts, one block in a hundred outlives its burst, others free it later; then idle.
 *
 * Source: own, for application servers after the day's load. In a burst every thread allocates blocks with Pareto sizes
 * of 16 bytes to 256 KiB (exponent 0.6: many small ones, most bytes in large ones), waits for the others as one waits for
 * a reply, keeps one block in a hundred and frees the rest; those that were kept eight bursts ago are freed by the next
 * thread. Variants: `bursts`, 5 ms between; random, drawn pauses.
 *
 * Work: small, 10 bursts of 500 blocks a thread; large, 24 of 4,000. rss_idle_kib is taken after two seconds in which no
 * thread does anything; live_kib is what they still hold; stretches, how often a burst may find memory given back: one
 * more than pauses of PRICE_MS or longer between bursts. Live peak: the largest sum over the threads, exact.
 */
#include <math.h>

#include "seed_case.h"

enum { KEEP_ONE_IN = 100, KEPT_BURSTS = 8, PAUSE_MS = 5, IDLE_MS = 2000, SIZE_TABLE = 4096 };

static size_t sizes[SIZE_TABLE]; /* quantiles of the law */
static size_t blocks_a_burst, kept_a_burst;
static int bursts;
static void **blocks; /* by thread */
static void **kept;   /* by thread and burst, modulo KEPT_BURSTS */
static pthread_barrier_t step;
static uint64_t pause_seed;
static uint64_t live_peak_bytes; /* first worker only, between two steps */

static void fill_sizes(void)
{
    double low = 16.0, high = 256 << 10, exponent = 0.6;
    for (int i = 0; i < SIZE_TABLE; i++) {
        double part = (i + 0.5) / SIZE_TABLE;
        sizes[i] = (size_t)(low * pow(1.0 - part * (1.0 - pow(low / high, exponent)), -1.0 / exponent));
    }
}

static void **kept_of(int thread, int burst)
{
    return kept + ((size_t)thread * KEPT_BURSTS + (size_t)(burst % KEPT_BURSTS)) * kept_a_burst;
}

/* Blocks of burst `burst`, kept by the thread before this one. */
static void drop_kept(struct worker *self, int burst)
{
    void **old = kept_of((self->index + run.threads - 1) % run.threads, burst);
    for (size_t i = 0; i < kept_a_burst; i++) {
        drop_block(self, old[i]);
        old[i] = NULL;
    }
}

static void note_peak(void)
{
    int64_t bytes = 0;
    for (int i = 0; i < run.threads; i++)
        bytes += run.workers[i].live_bytes;
    if ((uint64_t)bytes > live_peak_bytes)
        live_peak_bytes = (uint64_t)bytes;
}

static void work(struct worker *self)
{
    void **own = blocks + (size_t)self->index * blocks_a_burst;
    uint64_t pauses = pause_seed;
    for (int burst = 0; burst < bursts; burst++) {
        for (size_t i = 0; i < blocks_a_burst; i++) {
            size_t bytes = sizes[random_below(&self->random, SIZE_TABLE)];
            char *block = own[i] = allocate(bytes);
            for (size_t offset = 0; offset < bytes; offset += PAGE_BYTES)
                block[offset] = 1;
            stamp(self, block, bytes);
        }
        pthread_barrier_wait(&step);
        if (self->index == 0)
            note_peak();
        pthread_barrier_wait(&step);
        if (burst >= KEPT_BURSTS)
            drop_kept(self, burst);
        pthread_barrier_wait(&step);
        void **keep = kept_of(self->index, burst);
        for (size_t i = 0; i < blocks_a_burst; i++)
            if (i % KEEP_ONE_IN == (size_t)burst % KEEP_ONE_IN)
                keep[i / KEEP_ONE_IN] = own[i];
            else
                drop_block(self, own[i]);
        sleep_ms(pauses == 0 ? PAUSE_MS : draw_pause_ms(&pauses));
    }
    pthread_barrier_wait(&step);
}

static void body(struct worker *self)
{
    work(self);
    sleeper_body(self);
}

int main(int argc, char **argv)
{
    begin_case("pool", argc, argv);
    pause_seed = drawn_seed();
    if (pause_seed == 0 && !variant_is("bursts"))
        fail_variant("bursts");
    blocks_a_burst = pick(500, 4000);
    kept_a_burst = blocks_a_burst / KEEP_ONE_IN;
    bursts = (int)(pause_seed != 0 ? pick(4, 10) : pick(10, 24));
    fill_sizes();
    blocks = map_array((size_t)run.threads * blocks_a_burst, sizeof *blocks);
    kept = map_array((size_t)run.threads * KEPT_BURSTS * kept_a_burst, sizeof *kept);
    pthread_barrier_init(&step, NULL, (unsigned)run.threads);
    sem_init(&sleepers_may_end, 0, 0);

    record_start();
    double started_s = now_s();
    start_others(body);
    work(&run.workers[0]);
    run.seconds = now_s() - started_s;
    record_idle(IDLE_MS);
    int64_t live_bytes = 0;
    for (int i = 0; i < run.threads; i++)
        live_bytes += run.workers[i].live_bytes;
    double stretches = 1;
    for (int burst = 1; pause_seed != 0 && burst < bursts; burst++)
        stretches += draw_pause_ms(&pause_seed) >= PRICE_MS;
    mark("stretches", stretches);
    mark("live_kib", (double)live_bytes / 1024.0);
    end_sleepers();
    for (size_t i = 0; i < (size_t)run.threads * KEPT_BURSTS * kept_a_burst; i++)
        if (kept[i] != NULL)
            drop_block(&run.workers[0], kept[i]);
    return print_line(live_peak_bytes);
}
