/*
 * workload.h: what the programs of `faultless bench` share. Each program is this file and one page of its own.
 *
 * Usage of every program: NAME THREADS small|large [IDLE_MS [VARIANT]]. At its end it prints one line:
 *   workload name=NAME threads=N operations=N seconds=S live_peak=BYTES rss_start_kib=N rss_end_kib=N
 *            rss_idle_kib=N mappings=N check=N faults=N [MARK=N ...]
 *   operations  malloc + free pairs, or calls of realloc; the same for every allocator
 *   seconds     wall time from the first thread past the barrier to the last thread's end
 *   live_peak   requested bytes live at the peak; each program's header says how it is known
 *   rss_*_kib   resident set before the first thread, after the work, and after IDLE_MS more (-1 without IDLE_MS)
 *   mappings    lines of /proc/self/maps after the work
 *   check       sum over the words read back from the blocks and found as written
 *   faults      minor faults of the process from before the first thread until the end of the work
 *   MARK        figures of one program's own; seed_case.h
 * Exit status 1 when a block did not hold what was written, 2 for wrong arguments or when memory ran out.
 *
 * A program's own arrays come from mmap, resident before the work begins, so they weigh the same under every
 * allocator. Random numbers are seeded by thread or task: what is requested never depends on the clock.
 *
 * Order of calls: begin, map_array, then one of run_threads or run_generations, then finish. A program whose threads
 * outlive the measurement calls start_threads, record, join_threads and print_line itself.
 */
#ifndef WORKLOAD_H
#define WORKLOAD_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { CACHE_LINE_PAIR = 128, MAX_THREADS = 10000, SMALLEST_BLOCK = 16, WORKERS_SKIPPED = 10 };

/* One thread's state. Synchronization: its own thread, and the main thread after the join. */
struct worker {
    _Alignas(CACHE_LINE_PAIR) int index; /* 0 to THREADS - 1; in run_generations the place, not the thread */
    int generation;                      /* of run_generations: how many threads held this place before */
    uint64_t random;
    uint64_t serial;     /* of the next block stamped; its low half goes into the stamp */
    uint64_t operations; /* counted by the program */
    int64_t live_bytes;  /* stamped minus verified by this thread: negative for a thread that frees for others */
    int64_t live_peak_bytes;
    uint64_t written_sum, read_sum;
    double started_s;
    pthread_t thread;
    void (*body)(struct worker *self);
};

static struct {
    const char *name;
    int threads;
    bool large;
    long idle_ms;
    struct worker *workers;
    pthread_barrier_t barrier;
    size_t stack_bytes; /* 0: the system's default */
    double seconds;
    long rss_start_kib, rss_end_kib, rss_idle_kib, mappings;
    const char *variant; /* empty without one */
    long faults_start, faults;
    char marks[512];
} run;

/* ---- Errors ---- */

__attribute__((noreturn, format(printf, 2, 3))) static inline void fail(int status, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length < 0 || length >= (int)sizeof text)
        length = (int)sizeof text - 1;
    text[length] = '\n';
    ssize_t ignored = write(STDERR_FILENO, text, (size_t)length + 1);
    (void)ignored;
    _exit(status);
}

__attribute__((noreturn, cold)) static inline void fail_memory(size_t bytes)
{
    fail(2, "%s: out of memory for %zu bytes", run.name, bytes);
}

__attribute__((noreturn, cold)) static inline void fail_check(const char *what, uint64_t expected, uint64_t seen)
{
    fail(1, "%s: %s: expected %llu, saw %llu", run.name, what, (unsigned long long)expected,
         (unsigned long long)seen);
}

/* ---- Figures of this process, read without allocating ---- */

static inline double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static inline void sleep_ms(long ms)
{
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

/* Resident set in KiB, exact: smaps_rollup counts pages, where statm may lag behind by a batch per processor. */
static inline long resident_kib(void)
{
    char text[2048];
    int file = open("/proc/self/smaps_rollup", O_RDONLY);
    if (file < 0)
        return -1;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    if (length <= 0)
        return -1;
    text[length] = '\0';
    const char *field = strstr(text, "\nRss:");
    return field == NULL ? -1 : strtol(field + 5, NULL, 10);
}

static inline long minor_faults(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_minflt : -1;
}

static inline long count_mappings(void)
{
    char text[4096];
    int file = open("/proc/self/maps", O_RDONLY);
    if (file < 0)
        return -1;
    long lines = 0;
    ssize_t length;
    while ((length = read(file, text, sizeof text)) > 0)
        for (ssize_t i = 0; i < length; i++)
            lines += text[i] == '\n';
    close(file);
    return lines;
}

/* ---- The program's own memory ---- */

/* Zeroed array from the kernel, in ordinary pages, all resident on return. Never unmapped: it is the same at the start
 * and at the end of the measurement. */
static inline void *map_array(size_t count, size_t element_bytes)
{
    size_t bytes = count * element_bytes + 1;
    char *array = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (array == MAP_FAILED)
        fail_memory(bytes);
    madvise(array, bytes, MADV_NOHUGEPAGE);
    for (size_t offset = 0; offset < bytes; offset += 4096)
        ((volatile char *)array)[offset] = 0;
    return array;
}

/* ---- Random numbers: xorshift64*, Marsaglia 2003 and Vigna 2014 ---- */

static inline uint64_t mix(uint64_t number)
{
    number = (number ^ (number >> 31)) * 0x9e3779b97f4a7c15u;
    return number ^ (number >> 29);
}

static inline uint64_t seed_of(uint64_t number) { return mix(number * 2 + 0x5851f42d4c957f2du) | 1; }

static inline uint64_t next_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1du;
}

/* Uniform in 0 to below - 1, without a division. REQUIRES: 0 < below < 2^32. */
static inline size_t random_below(uint64_t *state, size_t below)
{
    return (size_t)(((next_random(state) >> 32) * below) >> 32);
}

/* Between 2^low and 2^high - 1, each power of two as likely as the next: many small ones and a few large. */
static inline size_t random_size(uint64_t *state, int low, int high)
{
    size_t power = (size_t)1 << (low + (int)random_below(state, (size_t)(high - low)));
    return power + random_below(state, power);
}

/* ---- Blocks ---- */

/* Hides a pointer's origin from the compiler, which may otherwise drop a malloc whose block goes nowhere. */
static inline void *opaque(void *pointer)
{
    __asm__ volatile("" : "+r"(pointer) : : "memory");
    return pointer;
}

static inline void *allocate(size_t bytes)
{
    void *block = opaque(malloc(bytes));
    if (block == NULL)
        fail_memory(bytes);
    return block;
}

static inline void count_live(struct worker *self, int64_t bytes)
{
    self->live_bytes += bytes;
    if (self->live_bytes > self->live_peak_bytes)
        self->live_peak_bytes = self->live_bytes;
}

/* Writes a block's length and number into its first word and a mix of both into its last, as a receipt that verify
 * demands back. REQUIRES: SMALLEST_BLOCK <= bytes < 2^32. */
static inline void stamp(struct worker *self, void *block, size_t bytes)
{
    uint64_t first = (uint64_t)bytes | self->serial++ << 32;
    uint64_t last = mix(first);
    memcpy((char *)block + bytes - sizeof last, &last, sizeof last);
    memcpy(block, &first, sizeof first);
    self->written_sum += last;
    count_live(self, (int64_t)bytes);
}

static inline size_t stamped_bytes(const void *block)
{
    uint32_t bytes;
    memcpy(&bytes, block, sizeof bytes); /* the low half of the first word: x86-64 and aarch64 are little-endian */
    return bytes;
}

/* Reads a stamped block's words back, takes it off the books, and returns its length. */
static inline size_t verify(struct worker *self, const void *block)
{
    uint64_t first, last;
    memcpy(&first, block, sizeof first);
    size_t bytes = (uint32_t)first;
    if (bytes < SMALLEST_BLOCK)
        fail_check("length in a block's first word", SMALLEST_BLOCK, bytes);
    memcpy(&last, (const char *)block + bytes - sizeof last, sizeof last);
    if (last != mix(first))
        fail_check("last word of a block", mix(first), last);
    self->read_sum += last;
    count_live(self, -(int64_t)bytes);
    return bytes;
}

/* malloc with a stamp, and free with its verification: one operation, counted at the free. */
static inline void *make_block(struct worker *self, size_t bytes)
{
    void *block = allocate(bytes);
    stamp(self, block, bytes);
    return block;
}

static inline void drop_block(struct worker *self, void *block)
{
    verify(self, block);
    self->operations++;
    free(block);
}

/* ---- Threads ---- */

/* Total amount divided among the threads: the part of the thread at `index` runs from part_begin to part_end. */
static inline size_t part_begin(size_t total, int index)
{
    return total * (size_t)index / (size_t)run.threads;
}

static inline size_t part_end(size_t total, int index) { return part_begin(total, index + 1); }

static inline size_t part_of(size_t total, const struct worker *self)
{
    return part_end(total, self->index) - part_begin(total, self->index);
}

static inline size_t pick(size_t small, size_t large) { return run.large ? large : small; }

static inline void *worker_entry(void *argument)
{
    struct worker *self = argument;
    if (self->generation == 0)
        pthread_barrier_wait(&run.barrier);
    if (self->started_s == 0.0)
        self->started_s = now_s();
    self->body(self);
    return NULL;
}

static inline void create_thread(struct worker *self)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    if (run.stack_bytes > 0)
        pthread_attr_setstacksize(&attributes, run.stack_bytes);
    int error = pthread_create(&self->thread, &attributes, worker_entry, self);
    pthread_attr_destroy(&attributes);
    if (error != 0)
        fail(2, "%s: cannot create thread %d of %d: %s (see ulimit -u)", run.name, self->index + 1, run.threads,
             strerror(error));
}

/* Notes what the process had before the measured part. */
static inline void record_start(void)
{
    run.rss_start_kib = resident_kib();
    run.faults_start = minor_faults();
}

/* Starts THREADS threads; none begins before all are there. */
static inline void start_threads(void (*body)(struct worker *self))
{
    pthread_barrier_init(&run.barrier, NULL, (unsigned)run.threads);
    record_start();
    for (int i = 0; i < run.threads; i++) {
        run.workers[i].body = body;
        create_thread(&run.workers[i]);
    }
}

static inline void join_threads(void)
{
    for (int i = 0; i < run.threads; i++)
        pthread_join(run.workers[i].thread, NULL);
}

/* Ends the measured part. REQUIRES: every worker has passed the barrier, and the caller knows it by a lock or join. */
static inline void stop_clock(void)
{
    double stopped_s = now_s(), started_s = stopped_s;
    for (int i = 0; i < run.threads; i++)
        if (run.workers[i].started_s < started_s)
            started_s = run.workers[i].started_s;
    run.seconds = stopped_s - started_s;
}

static inline void run_threads(void (*body)(struct worker *self))
{
    start_threads(body);
    join_threads();
    stop_clock();
}

/* ---- Short-lived threads ---- */

static struct {
    sem_t ended;
    atomic_bool *is_over; /* by place */
    void (*body)(struct worker *self);
} generations;

static inline void generation_body(struct worker *self)
{
    generations.body(self);
    /* ORDERING: the join publishes what the thread wrote; the flag only says whom to join. */
    atomic_store_explicit(&generations.is_over[self->index], true, memory_order_release);
    sem_post(&generations.ended);
}

/* Runs `total` threads, THREADS at a time: the main thread joins each one that ends and puts a new one, of the next
 * generation, into its place. Each place sees the same number of threads, or one more, in every run. */
static inline void run_generations(size_t total, void (*body)(struct worker *self))
{
    sem_init(&generations.ended, 0, 0);
    generations.is_over = map_array((size_t)run.threads, sizeof *generations.is_over);
    generations.body = body;
    start_threads(generation_body);
    size_t alive = (size_t)run.threads;
    while (alive > 0) {
        while (sem_wait(&generations.ended) != 0)
            ;
        int place = 0;
        while (!atomic_exchange(&generations.is_over[place], false))
            place = place + 1 < run.threads ? place + 1 : 0;
        struct worker *worker = &run.workers[place];
        pthread_join(worker->thread, NULL);
        if ((size_t)++worker->generation < part_of(total, worker))
            create_thread(worker);
        else
            alive--;
    }
    stop_clock();
}

/* ---- Begin and report ---- */

static inline long parse_number(const char *what, const char *text, long low, long high)
{
    char *end;
    errno = 0;
    long number = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || number < low || number > high)
        fail(2, "%s: %s must be a number from %ld to %ld, not %s", run.name, what, low, high, text);
    return number;
}

static inline void begin(const char *name, int argc, char **argv)
{
    run.name = name;
    if (argc < 3 || argc > 5)
        fail(2, "%s: expected 2 to 4 arguments, saw %d: %s THREADS small|large [IDLE_MS [VARIANT]]", name, argc - 1,
             name);
    run.threads = (int)parse_number("THREADS", argv[1], 1, MAX_THREADS);
    run.large = strcmp(argv[2], "large") == 0;
    if (!run.large && strcmp(argv[2], "small") != 0)
        fail(2, "%s: the size must be small or large, not %s", name, argv[2]);
    run.idle_ms = argc > 3 ? parse_number("IDLE_MS", argv[3], 0, 3600000) : 0;
    run.variant = argc > 4 ? argv[4] : "";
    /* Not where a page begins: loads of a worker's sums would wait for stores to the starts of page-aligned blocks, whose
       low 12 address bits are the same (4 KiB aliasing), and a loop over 256 pages take twice as long. */
    run.workers = (struct worker *)map_array((size_t)run.threads + WORKERS_SKIPPED, sizeof *run.workers) + WORKERS_SKIPPED;
    for (int i = 0; i < run.threads; i++) {
        run.workers[i].index = i;
        run.workers[i].random = seed_of((uint64_t)i);
        run.workers[i].serial = (uint64_t)i * 0x9e3779b1u;
    }
}

/* Records what is resident now and after IDLE_MS more. */
static inline void record(void)
{
    run.faults = minor_faults() - run.faults_start;
    run.rss_end_kib = resident_kib();
    run.mappings = count_mappings();
    run.rss_idle_kib = -1;
    if (run.idle_ms > 0) {
        sleep_ms(run.idle_ms);
        run.rss_idle_kib = resident_kib();
    }
}

/* The sum of the threads' own peaks: exact where the peaks are held at the same time, else a bound. */
static inline uint64_t sum_of_peaks(void)
{
    uint64_t bytes = 0;
    for (int i = 0; i < run.threads; i++)
        bytes += (uint64_t)run.workers[i].live_peak_bytes;
    return bytes;
}

/* Compares what all threads wrote with what all threads read back, and prints the line. REQUIRES: threads joined. */
static inline int print_line(uint64_t live_peak_bytes)
{
    uint64_t operations = 0, written_sum = 0, read_sum = 0;
    int64_t live_bytes = 0;
    for (int i = 0; i < run.threads; i++) {
        operations += run.workers[i].operations;
        written_sum += run.workers[i].written_sum;
        read_sum += run.workers[i].read_sum;
        live_bytes += run.workers[i].live_bytes;
    }
    if (read_sum != written_sum)
        fail_check("sum of the words read back", written_sum, read_sum);
    if (live_bytes != 0)
        fail_check("bytes still live at the end", 0, (uint64_t)live_bytes);

    char text[1024];
    int length = snprintf(text, sizeof text,
                          "workload name=%s threads=%d operations=%llu seconds=%.6f live_peak=%llu rss_start_kib=%ld "
                          "rss_end_kib=%ld rss_idle_kib=%ld mappings=%ld check=%llu faults=%ld%s\n",
                          run.name, run.threads, (unsigned long long)operations, run.seconds,
                          (unsigned long long)live_peak_bytes, run.rss_start_kib, run.rss_end_kib, run.rss_idle_kib,
                          run.mappings, (unsigned long long)read_sum, run.faults, run.marks);
    return write(STDOUT_FILENO, text, (size_t)length) == length ? 0 : 2;
}

static inline int finish(uint64_t live_peak_bytes)
{
    record();
    return print_line(live_peak_bytes);
}

#endif
