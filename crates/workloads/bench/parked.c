/*
 * parked: hundreds of threads that did a little work, freed all of it, and wait. What do they keep?
 *
 * Source: own, for servers with a thread a connection and for thread pools after a burst, whose per-thread caches hold
 * memory nobody uses. Every thread allocates some hundreds of blocks of 16 bytes to 8 KiB, frees all of them, and parks
 * on a condition variable. At most eight work at the same time, as behind a queue of jobs.
 *
 * Work: each thread's own; run it with 500 or 2,000 threads. rss_end_kib is recorded while all threads are parked, so
 * it includes their stacks, which are 64 KiB of address space each and the same for every allocator. Live peak: eight
 * times (with fewer threads: as many times) the largest peak of a thread, a bound.
 */
#include "workload.h"

enum { AT_WORK = 8, MAX_BLOCKS = 2400, STACK_BYTES = 64 << 10 };

static size_t block_count, rounds;
static sem_t seats; /* of AT_WORK */
static void *(*desks)[MAX_BLOCKS];
static atomic_bool desk_is_taken[AT_WORK];

/* Synchronization: both fields under `lock`. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int parked;
    bool may_end;
} lot = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void work(struct worker *self, void **blocks)
{
    for (size_t round = 0; round < rounds; round++) {
        for (size_t i = 0; i < block_count; i++)
            blocks[i] = make_block(self, random_size(&self->random, 4, 13));
        for (size_t i = 0; i < block_count; i++)
            drop_block(self, blocks[i]);
    }
}

static void park(void)
{
    pthread_mutex_lock(&lot.lock);
    lot.parked++;
    pthread_cond_broadcast(&lot.changed);
    while (!lot.may_end)
        pthread_cond_wait(&lot.changed, &lot.lock);
    pthread_mutex_unlock(&lot.lock);
}

static void body(struct worker *self)
{
    while (sem_wait(&seats) != 0)
        ;
    int desk = 0;
    while (atomic_exchange(&desk_is_taken[desk], true))
        desk = (desk + 1) % AT_WORK;
    work(self, desks[desk]);
    atomic_store(&desk_is_taken[desk], false);
    sem_post(&seats);
    park();
}

int main(int argc, char **argv)
{
    begin("parked", argc, argv);
    block_count = pick(300, MAX_BLOCKS);
    rounds = pick(8, 4);
    run.stack_bytes = STACK_BYTES;
    desks = map_array(AT_WORK, sizeof *desks);
    sem_init(&seats, 0, AT_WORK);
    start_threads(body);

    pthread_mutex_lock(&lot.lock);
    while (lot.parked < run.threads)
        pthread_cond_wait(&lot.changed, &lot.lock);
    stop_clock();
    pthread_mutex_unlock(&lot.lock);
    record();

    pthread_mutex_lock(&lot.lock);
    lot.may_end = true;
    pthread_cond_broadcast(&lot.changed);
    pthread_mutex_unlock(&lot.lock);
    join_threads();

    int64_t largest_bytes = 0;
    for (int i = 0; i < run.threads; i++)
        if (run.workers[i].live_peak_bytes > largest_bytes)
            largest_bytes = run.workers[i].live_peak_bytes;
    return print_line((uint64_t)largest_bytes * (uint64_t)(run.threads < AT_WORK ? run.threads : AT_WORK));
}
