/*
 * loop1m: malloc and free of 1 MiB, the program that a way to give memory back must not slow down.
 *
 * Source: the second program of "Using a customized malloc on AIX 5.2 and 5.3" (2008): 0.40 s there where nothing was
 * given back, 121.56 s where everything was. Variants: `untouched`, as it was; `touched`, with one byte written; random,
 * drawn sizes, one byte written, pauses between.
 *
 * Work: 262,144 or 1,048,576 turns of one thread. Live peak: one block, exact. cpu_s is the time of the turns.
 */
#include "seed_case.h"

enum { MAX_BURSTS = 8, BLOCK_BYTES = 1 << 20 };

static void turns(struct worker *self, size_t bytes, size_t count, bool is_touched)
{
    for (size_t i = 0; i < count; i++) {
        char *block = allocate(bytes);
        if (is_touched)
            *(volatile char *)block = (char)i;
        free(opaque(block));
    }
    self->operations += count;
}

int main(int argc, char **argv)
{
    begin_case("loop1m", argc, argv);
    uint64_t random = drawn_seed();
    if (random == 0 && !variant_is("untouched") && !variant_is("touched"))
        fail_variant("untouched, touched");
    size_t count = pick((size_t)1 << 18, (size_t)1 << 20), live_bytes = BLOCK_BYTES;

    record_start();
    struct begun begun = begin_work();
    if (random == 0)
        turns(&run.workers[0], BLOCK_BYTES, count, variant_is("touched"));
    else
        for (size_t burst = 0; burst < pick(3, MAX_BURSTS); burst++) {
            size_t bytes = draw_bytes(&random);
            live_bytes = bytes > live_bytes ? bytes : live_bytes;
            turns(&run.workers[0], bytes, count / MAX_BURSTS, true);
            sleep_ms(draw_pause_ms(&random));
        }
    end_work(begun);
    record();
    return print_line(live_bytes);
}
