/*
 * parked_random: threads that allocated much, freed it in random order, and wait. What do their caches keep from going
 * back? A cache of some hundred blocks freed in random order may hold on to as many pages.
 *
 * Source: own, for pools of connections and the threads of a JVM. Each of THREADS threads allocates 300,000 blocks of 64
 * to 512 bytes, frees all in random order, and waits on a futex. At most sixteen work at the same time. Variants:
 * `futex`; random, up to 256 MiB in all in blocks of drawn sizes.
 *
 * Work: each thread's own (small: 60,000 blocks). rss_idle_kib is taken two seconds after the last of them was freed;
 * until then nothing calls malloc. parked: threads that wait. Live peak: sixteen times the largest peak of a thread.
 */
#include "seed_case.h"

enum { AT_WORK = 16, IDLE_MS = 2000 };

static size_t block_count;
static void **desks; /* of AT_WORK, block_count each */
static sem_t seats;
static atomic_bool desk_is_taken[AT_WORK];
static atomic_int parked;

static size_t fill_drawn(struct worker *self, void **blocks, uint64_t random)
{
    random = mix(random + (uint64_t)self->index) | 1;
    size_t count = 0, most = ((size_t)LEAST_DRAWN_BYTES << MOST_DRAWN_POWER) / AT_WORK;
    for (size_t bytes = 0; bytes < most && count < block_count; count++) {
        size_t size = draw_bytes(&random) >> random_below(&random, 10);
        size = size < most ? size : most;
        blocks[count] = make_block(self, size);
        bytes += size;
    }
    return count;
}

static void work(struct worker *self, void **blocks)
{
    uint64_t random = drawn_seed();
    size_t count = block_count;
    if (random != 0)
        count = fill_drawn(self, blocks, random);
    else
        for (size_t i = 0; i < count; i++)
            blocks[i] = make_block(self, 64 + random_below(&self->random, 512 - 64 + 1));
    for (size_t left = count; left > 0; left--) {
        size_t i = random_below(&self->random, left);
        drop_block(self, blocks[i]);
        blocks[i] = blocks[left - 1];
    }
}

static void body(struct worker *self)
{
    while (sem_wait(&seats) != 0)
        ;
    int desk = 0;
    while (atomic_exchange(&desk_is_taken[desk], true))
        desk = (desk + 1) % AT_WORK;
    work(self, desks + (size_t)desk * block_count);
    atomic_store(&desk_is_taken[desk], false);
    sem_post(&seats);
    atomic_fetch_add(&parked, 1);
    sleeper_body(self);
}

int main(int argc, char **argv)
{
    begin_case("parked_random", argc, argv);
    if (drawn_seed() == 0 && !variant_is("futex"))
        fail_variant("futex");
    run.threads++; /* the main thread only waits */
    if (run.threads > MAX_THREADS)
        fail(2, "parked_random: THREADS must be less than %d", MAX_THREADS);
    run.workers = map_array((size_t)run.threads, sizeof *run.workers);
    for (int i = 0; i < run.threads; i++) {
        run.workers[i].index = i;
        run.workers[i].random = seed_of((uint64_t)i);
    }
    block_count = pick(60000, 300000);
    desks = map_array(AT_WORK * block_count, sizeof *desks);
    sem_init(&seats, 0, AT_WORK);
    sem_init(&sleepers_may_end, 0, 0);

    record_start();
    double started_s = now_s();
    start_others(body);
    while (atomic_load(&parked) < run.threads - 1)
        sleep_ms(1);
    run.seconds = now_s() - started_s;
    record_idle(IDLE_MS);
    end_sleepers();
    mark("parked", run.threads - 1);
    int64_t largest_bytes = 0;
    for (int i = 0; i < run.threads; i++)
        if (run.workers[i].live_peak_bytes > largest_bytes)
            largest_bytes = run.workers[i].live_peak_bytes;
    run.threads--;
    run.workers++; /* the main thread has no figures */
    return print_line((uint64_t)largest_bytes * AT_WORK);
}
