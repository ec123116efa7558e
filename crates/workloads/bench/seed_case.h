/*
 * seed_case.h: what the programs of the suite `seeds` add to workload.h.
 *
 * Usage: NAME THREADS small|large IDLE_MS VARIANT. The variant names a form of the case; `random:SEED` draws its sizes
 * from 32 KiB to 256 MiB and its pauses from 0 to 5 s, the same for every allocator.
 *
 * The main thread is the first worker: with THREADS 1 the process has one thread, and an allocator may know it.
 * After the work nothing calls malloc until the figures are taken: /proc is read into the stack, by system calls.
 *
 * Order of calls: begin_case, map_array, record_start, the work, then record_idle or record, then print_line.
 */
#ifndef SEED_CASE_H
#define SEED_CASE_H

#include "workload.h"

enum { PAGE_BYTES = 4096, CACHE_LINE_BYTES = 64 };
enum { LEAST_DRAWN_BYTES = 32 << 10, MOST_DRAWN_POWER = 13, LONGEST_PAUSE_MS = 5000 };

/* Pauses from which on memory may have been given back and may fault again: the time after which holding a page has
 * cost as much as a purge and a fault would, rounded up (docs/decay.md). */
enum { PRICE_MS = 250 };

static inline bool variant_is(const char *name) { return strcmp(run.variant, name) == 0; }

/* Adds a figure to the printed line. */
static inline void mark(const char *name, double value)
{
    size_t used = strlen(run.marks);
    int length = snprintf(run.marks + used, sizeof run.marks - used, " %s=%.6g", name, value);
    if (length < 0 || (size_t)length >= sizeof run.marks - used)
        fail(2, "%s: too many marks", run.name);
}

/* The state of a random variant; 0 for any other. */
static inline uint64_t drawn_seed(void)
{
    if (strncmp(run.variant, "random:", 7) != 0)
        return 0;
    return seed_of((uint64_t)parse_number("SEED of random:SEED", run.variant + 7, 0, INT32_MAX));
}

static inline void begin_case(const char *name, int argc, char **argv)
{
    begin(name, argc, argv);
    if (argc < 5)
        fail(2, "%s: expected 4 arguments, saw %d: %s THREADS small|large IDLE_MS VARIANT", name, argc - 1, name);
}

__attribute__((noreturn)) static inline void fail_variant(const char *known)
{
    fail(2, "%s: the variant must be %s or random:SEED, not %s", run.name, known, run.variant);
}

/* From 32 KiB to 256 MiB, each doubling as likely as the next. */
static inline size_t draw_bytes(uint64_t *state)
{
    size_t low = (size_t)LEAST_DRAWN_BYTES << random_below(state, MOST_DRAWN_POWER);
    return low + random_below(state, low + 1);
}

/* From 0 to 5 s: a quarter are 0, the others grow evenly in their logarithm. */
static inline long draw_pause_ms(uint64_t *state)
{
    long power = 1L << random_below(state, 13);
    long pause_ms = power + (long)random_below(state, (size_t)power);
    if (random_below(state, 4) == 0)
        return 0;
    return pause_ms < LONGEST_PAUSE_MS ? pause_ms : LONGEST_PAUSE_MS;
}

static inline size_t pages_of(size_t bytes) { return (bytes + PAGE_BYTES - 1) / PAGE_BYTES; }

/*
 * The word of a page of a block: in the same page of memory as that page's begin, in another cache line than its
 * neighbours'. Words a page apart share one set of the first-level cache, and how fast they are written then depends on
 * whether something between two turns waits for the stores (a locked instruction, a fence), not on the allocator's cost.
 */
static inline char *word_of_page(char *block, size_t page, size_t bytes)
{
    uintptr_t begin = (uintptr_t)block + page, line = page / PAGE_BYTES * CACHE_LINE_BYTES;
    char *word = (char *)((begin & ~(uintptr_t)(PAGE_BYTES - 1)) | ((begin + line) & (PAGE_BYTES - 1)));
    return word + sizeof(uint64_t) <= block + bytes ? word : block + page;
}

/* Writes one word in every page of a block and reads all of them back. */
static inline void touch_pages(struct worker *self, char *block, size_t bytes)
{
    for (size_t page = 0; page + sizeof(uint64_t) <= bytes; page += PAGE_BYTES) {
        uint64_t word = mix(self->serial + page);
        memcpy(word_of_page(block, page, bytes), &word, sizeof word);
        self->written_sum += word;
    }
    opaque(block);
    for (size_t page = 0; page + sizeof(uint64_t) <= bytes; page += PAGE_BYTES) {
        uint64_t word;
        memcpy(&word, word_of_page(block, page, bytes), sizeof word);
        self->read_sum += word;
    }
    self->serial++;
}

/* ---- Pages that a policy may have to fault ---- */

/* Pages that the work needs resident at once, summed over the stretches between pauses of PRICE_MS and more. */
static struct {
    size_t stretch_pages, done_pages;
} due;

static inline void due_pages(size_t pages)
{
    if (pages > due.stretch_pages)
        due.stretch_pages = pages;
}

static inline void due_pause(long pause_ms)
{
    if (pause_ms >= PRICE_MS) {
        due.done_pages += due.stretch_pages;
        due.stretch_pages = 0;
    }
}

static inline void mark_due(void) { mark("due_pages", (double)(due.done_pages + due.stretch_pages)); }

/* ---- Threads ---- */

/* Synchronization: set once, by the main thread. */
static sem_t sleepers_may_end;

static inline void sleeper_body(struct worker *self)
{
    (void)self;
    while (sem_wait(&sleepers_may_end) != 0)
        ;
    sem_post(&sleepers_may_end);
}

/* Starts the workers from the second on; the main thread is the first, and runs `body` when it likes. */
static inline void start_others(void (*body)(struct worker *self))
{
    run.workers[0].generation = 1;
    for (int i = 1; i < run.threads; i++) {
        run.workers[i].generation = 1; /* no barrier */
        run.workers[i].body = body;
        create_thread(&run.workers[i]);
    }
}

/* Threads that wait on a futex until end_sleepers. */
static inline void start_sleepers(void)
{
    sem_init(&sleepers_may_end, 0, 0);
    start_others(sleeper_body);
}

static inline void join_others(void)
{
    for (int i = 1; i < run.threads; i++)
        pthread_join(run.workers[i].thread, NULL);
}

static inline void end_sleepers(void)
{
    sem_post(&sleepers_may_end);
    join_others();
}

/* ---- Figures ---- */

static inline double processor_s(void)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + (double)used.tv_nsec * 1e-9;
}

/* When the work that is timed began: by the clock, and in processor time of the process. */
struct begun {
    double wall_s, processor_s;
};

static inline struct begun begin_work(void) { return (struct begun){now_s(), processor_s()}; }

/* Marks cpu_s and sets run.seconds. */
static inline void end_work(struct begun begun)
{
    mark("cpu_s", processor_s() - begun.processor_s);
    run.seconds = now_s() - begun.wall_s;
}

/* Records what is resident now and `idle_ms` later, without a call of malloc in between. */
static inline void record_idle(long idle_ms)
{
    run.idle_ms = idle_ms;
    record();
}

#endif
