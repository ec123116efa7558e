/*
 * dgemm: a matrix product that takes two work buffers for each call, packs its operands into them, and frees them.
 *
 * Source: the chemistry code of "A Study in Malloc" (Ezolt, ALS 2001), whose mathematics library did this: 23 million
 * faults, 209 s of system time. Two buffers of 4 MiB a call; random: of two drawn sizes, in bursts with pauses between.
 *
 * Work: 500 or 5,000 calls of the main thread; the other threads, if any, sleep. Live peak: both buffers, exact.
 */
#include "seed_case.h"

enum { MAX_BURSTS = 10, BUFFER_BYTES = 4 << 20, LEAST_CALLS = 4 };

static struct burst {
    size_t bytes[2], calls;
    long pause_ms; /* before it */
} bursts[MAX_BURSTS];
static size_t burst_count;
static uint64_t *operand; /* as long as the largest buffer */

static void plan(void)
{
    uint64_t random = drawn_seed();
    if (random == 0) {
        if (!variant_is("4M"))
            fail_variant("4M");
        bursts[0] = (struct burst){{BUFFER_BYTES, BUFFER_BYTES}, pick(500, 5000), 0};
        burst_count = 1;
        return;
    }
    burst_count = pick(3, MAX_BURSTS);
    for (size_t i = 0; i < burst_count; i++) {
        size_t a = draw_bytes(&random), b = draw_bytes(&random);
        size_t calls = pick((size_t)512 << 20, (size_t)2 << 30) / (a + b);
        bursts[i] = (struct burst){{a, b}, calls > LEAST_CALLS ? calls : LEAST_CALLS, i > 0 ? draw_pause_ms(&random) : 0};
    }
}

static uint64_t *pack(size_t bytes)
{
    uint64_t *buffer = allocate(bytes);
    memcpy(buffer, operand, bytes);
    return opaque(buffer);
}

/* The product's read of a buffer: a sum stands for it. */
static uint64_t read_all(const uint64_t *buffer, size_t bytes)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < bytes / sizeof *buffer; i++)
        sum += buffer[i];
    return sum;
}

static void call(struct worker *self, const struct burst *burst)
{
    uint64_t *a = pack(burst->bytes[0]), *b = pack(burst->bytes[1]);
    self->written_sum += read_all(operand, burst->bytes[0]) + read_all(operand, burst->bytes[1]);
    self->read_sum += read_all(a, burst->bytes[0]) + read_all(b, burst->bytes[1]);
    free(a);
    free(b);
    self->operations += 2;
}

int main(int argc, char **argv)
{
    begin_case("dgemm", argc, argv);
    plan();
    size_t longest = 0, live_bytes = 0;
    for (size_t i = 0; i < burst_count; i++) {
        const struct burst *burst = &bursts[i];
        due_pause(burst->pause_ms);
        due_pages(pages_of(burst->bytes[0]) + pages_of(burst->bytes[1]));
        for (int buffer = 0; buffer < 2; buffer++)
            longest = burst->bytes[buffer] > longest ? burst->bytes[buffer] : longest;
        if (burst->bytes[0] + burst->bytes[1] > live_bytes)
            live_bytes = burst->bytes[0] + burst->bytes[1];
    }
    mark_due();
    operand = map_array(longest / sizeof *operand + 1, sizeof *operand);
    for (size_t i = 0; i < longest / sizeof *operand; i += 8)
        operand[i] = mix(i);

    record_start();
    start_sleepers();
    double started_s = now_s();
    for (size_t i = 0; i < burst_count; i++) {
        sleep_ms(bursts[i].pause_ms);
        for (size_t n = 0; n < bursts[i].calls; n++)
            call(&run.workers[0], &bursts[i]);
    }
    run.seconds = now_s() - started_s;
    record();
    end_sleepers();
    return print_line(live_bytes);
}
