/*
 * pools: a pool of threads gets its work in bursts, with pauses between them in which all threads wait.
 *
 * Source: own, for thread pools of servers. The items of a burst go to whichever thread comes first. An item frees what
 * the item of the same number left behind in the burst before, most likely another thread's, then allocates blocks,
 * frees half of them, and leaves the rest. Between the bursts the pool waits for two milliseconds.
 *
 * Work: the items are a total, shared out as threads come for them. The pool's threads are still alive, all blocks
 * freed, when rss_end_kib is recorded. seconds includes the pauses. Live peak: what a burst leaves behind at most, and
 * the largest item in every thread's hands, a bound.
 */
#include "workload.h"

enum { ITEM_BLOCKS = 48, ITEM_LEFT = ITEM_BLOCKS / 2, PAUSE_MS = 2 };

struct item {
    void *left[ITEM_LEFT];
    int64_t left_bytes, item_bytes; /* of the last burst */
};

static struct item *items;
static size_t items_a_burst, bursts;
static int64_t left_peak_bytes, item_peak_bytes; /* main thread only */

/* Synchronization: all fields under `lock`. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t work_changed, burst_ended;
    size_t burst, next_item, items_done;
    int waiting;
    bool is_over;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER,
          .work_changed = PTHREAD_COND_INITIALIZER,
          .burst_ended = PTHREAD_COND_INITIALIZER};

/* The last burst, of number `bursts`, only frees. */
static void process(struct worker *self, size_t burst, size_t number)
{
    struct item *item = &items[number];
    void *blocks[ITEM_BLOCKS];
    for (int i = 0; i < ITEM_LEFT; i++)
        if (item->left[i] != NULL)
            drop_block(self, item->left[i]);
    if (burst == bursts)
        return;
    uint64_t random = seed_of(burst * items_a_burst + number);
    self->serial = random; /* the item's, so that check does not depend on which thread came first */
    item->item_bytes = item->left_bytes = 0;
    for (int i = 0; i < ITEM_BLOCKS; i++) {
        size_t bytes = random_size(&random, 4, 12);
        blocks[i] = make_block(self, bytes);
        item->item_bytes += (int64_t)bytes;
    }
    for (int i = 0; i < ITEM_BLOCKS; i++)
        if (i % 2 == 0) {
            item->left[i / 2] = blocks[i];
            item->left_bytes += (int64_t)stamped_bytes(blocks[i]);
        } else {
            drop_block(self, blocks[i]);
        }
}

static void body(struct worker *self)
{
    pthread_mutex_lock(&pool.lock);
    while (!pool.is_over) {
        if (pool.next_item == items_a_burst) {
            pool.waiting++;
            pthread_cond_signal(&pool.burst_ended);
            pthread_cond_wait(&pool.work_changed, &pool.lock);
            pool.waiting--;
            continue;
        }
        size_t burst = pool.burst, number = pool.next_item++;
        pthread_mutex_unlock(&pool.lock);
        process(self, burst, number);
        pthread_mutex_lock(&pool.lock);
        pool.items_done++;
    }
    pthread_mutex_unlock(&pool.lock);
}

/* Waits for all threads of the pool. REQUIRES: pool.lock is held. */
static void wait_for_pool(void)
{
    while (pool.waiting < run.threads || pool.items_done < items_a_burst)
        pthread_cond_wait(&pool.burst_ended, &pool.lock);
}

/* REQUIRES: all threads of the pool wait, and pool.lock is held. */
static void note_peaks(void)
{
    int64_t left_bytes = 0;
    for (size_t i = 0; i < items_a_burst; i++) {
        left_bytes += items[i].left_bytes;
        if (items[i].item_bytes > item_peak_bytes)
            item_peak_bytes = items[i].item_bytes;
    }
    if (left_bytes > left_peak_bytes)
        left_peak_bytes = left_bytes;
}

int main(int argc, char **argv)
{
    begin("pools", argc, argv);
    items_a_burst = pick(300, 2400);
    bursts = 120;
    items = map_array(items_a_burst, sizeof *items);
    pool.next_item = pool.items_done = items_a_burst;
    start_threads(body);

    pthread_mutex_lock(&pool.lock);
    wait_for_pool();
    for (pool.burst = 0; pool.burst <= bursts; pool.burst++) {
        pthread_mutex_unlock(&pool.lock);
        sleep_ms(PAUSE_MS);
        pthread_mutex_lock(&pool.lock);
        pool.next_item = pool.items_done = 0;
        pthread_cond_broadcast(&pool.work_changed);
        wait_for_pool();
        note_peaks();
    }
    stop_clock();
    pthread_mutex_unlock(&pool.lock);
    record();

    pthread_mutex_lock(&pool.lock);
    pool.is_over = true;
    pthread_cond_broadcast(&pool.work_changed);
    pthread_mutex_unlock(&pool.lock);
    join_threads();
    return print_line((uint64_t)(left_peak_bytes + item_peak_bytes * run.threads));
}
