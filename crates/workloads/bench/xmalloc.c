/*
 * xmalloc: some threads only allocate, the others only free what these allocated.
 *
 * Source: "malloc() Performance in a Multithreaded Linux Environment" (Lever, Boreham, USENIX 2000), whose
 * malloc-test has producers and consumers. Half of the threads allocate batches of 64 blocks of 16 to 512 bytes and
 * put them into a bounded queue; the other half take batches out and free them. The consumers begin when the queue is
 * full for the first time. One thread alone fills the queue and empties it by turns.
 *
 * Work: the number of batches is a total, divided among the producers. Every batch has the same 64 sizes in a random
 * order. Live peak: the full queue and one batch in every thread's hands, a bound.
 */
#include "workload.h"

enum { BATCH_BLOCKS = 64 };

struct batch {
    void *blocks[BATCH_BLOCKS];
};

/* Synchronization: all fields under `lock`. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t not_full, not_empty;
    struct batch *batches; /* a ring of `capacity` */
    size_t capacity, first, count, taken;
    bool was_full;
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER,
           .not_full = PTHREAD_COND_INITIALIZER,
           .not_empty = PTHREAD_COND_INITIALIZER};

static size_t batch_count;
static int producers;

static size_t size_of_block(size_t i) { return 16 + (i * i * 31 / 250); } /* 16 to 508, denser among the small */

static void produce(struct worker *self, struct batch *batch)
{
    size_t offset = random_below(&self->random, BATCH_BLOCKS);
    for (size_t i = 0; i < BATCH_BLOCKS; i++)
        batch->blocks[i] = make_block(self, size_of_block((i * 37 + offset) % BATCH_BLOCKS));
}

static void consume(struct worker *self, struct batch *batch)
{
    for (size_t i = 0; i < BATCH_BLOCKS; i++)
        drop_block(self, batch->blocks[i]);
}

static void put(const struct batch *batch)
{
    pthread_mutex_lock(&queue.lock);
    while (queue.count == queue.capacity)
        pthread_cond_wait(&queue.not_full, &queue.lock);
    queue.batches[(queue.first + queue.count++) % queue.capacity] = *batch;
    if (queue.count == queue.capacity && !queue.was_full) {
        queue.was_full = true;
        pthread_cond_broadcast(&queue.not_empty);
    } else if (queue.was_full) {
        pthread_cond_signal(&queue.not_empty);
    }
    pthread_mutex_unlock(&queue.lock);
}

/* Takes the oldest batch; false when all batches of the run were taken. */
static bool take(struct batch *batch)
{
    pthread_mutex_lock(&queue.lock);
    while (queue.taken < batch_count && (queue.count == 0 || !queue.was_full))
        pthread_cond_wait(&queue.not_empty, &queue.lock);
    bool found = queue.taken < batch_count;
    if (found) {
        *batch = queue.batches[queue.first];
        queue.first = (queue.first + 1) % queue.capacity;
        queue.count--;
        if (++queue.taken == batch_count)
            pthread_cond_broadcast(&queue.not_empty);
        pthread_cond_signal(&queue.not_full);
    }
    pthread_mutex_unlock(&queue.lock);
    return found;
}

static void alternate(struct worker *self)
{
    struct batch batch;
    for (size_t made = 0; made < batch_count;) {
        for (; made < batch_count && queue.count < queue.capacity; made++) {
            produce(self, &batch);
            put(&batch);
        }
        while (queue.count > 0 && take(&batch))
            consume(self, &batch);
    }
}

static void body(struct worker *self)
{
    struct batch batch;
    if (run.threads == 1) {
        alternate(self);
    } else if (self->index < producers) {
        size_t share = batch_count * (size_t)(self->index + 1) / (size_t)producers -
                       batch_count * (size_t)self->index / (size_t)producers;
        for (size_t i = 0; i < share; i++) {
            produce(self, &batch);
            put(&batch);
        }
    } else {
        while (take(&batch))
            consume(self, &batch);
    }
}

int main(int argc, char **argv)
{
    begin("xmalloc", argc, argv);
    producers = run.threads / 2;
    queue.capacity = pick(256, 2048);
    batch_count = pick(200000, 360000);
    queue.batches = map_array(queue.capacity, sizeof *queue.batches);
    run_threads(body);

    uint64_t batch_bytes = 0;
    for (size_t i = 0; i < BATCH_BLOCKS; i++)
        batch_bytes += size_of_block(i);
    return finish((queue.capacity + (run.threads > 1 ? (size_t)run.threads : 0)) * batch_bytes);
}
