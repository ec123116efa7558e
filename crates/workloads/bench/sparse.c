/*
 * sparse: calloc of 1 GiB, of which one page in a hundred is used. Is the rest touched?
 *
 * Source: own, for hash tables and matrices that are mostly empty, and buffers of which most hold little. Variants:
 * `once`; `again`, the same three times, so that freed memory that was used is there when the next is asked for;
 * `buffers`, malloc of many of 16 KiB, as a server has one for each connection, and 100 bytes in each; `zeroed`, the same
 * of calloc; random, drawn sizes of `again`, three times, pauses between.
 *
 * Work: random pages are found zero, written, and in the end read back; the others are left alone, for a read of them
 * would fault. used_kib: the pages written in the largest, or all buffers. Live peak: the bytes asked for, exact.
 */
#include "seed_case.h"

enum { USE_ONE_IN = 100, TIMES = 3, BUFFER_BYTES = 16 << 10, BUFFER_USED = 100 };

/* The first word of a page that was written. */
static uint64_t word_of(const struct worker *self, size_t page) { return mix(self->serial << 32 | page); }

/* Writes one page in a hundred, at random. Returns how many different ones. */
static size_t use(struct worker *self, char *array, size_t pages, uint64_t random)
{
    size_t used = 0;
    for (size_t i = 0; i < pages / USE_ONE_IN + 1; i++) {
        size_t page = random_below(&random, pages);
        uint64_t word, written = word_of(self, page);
        memcpy(&word, array + page * PAGE_BYTES, sizeof word);
        if (word == written)
            continue;
        if (word != 0)
            fail_check("first word of a page", 0, word);
        memcpy(array + page * PAGE_BYTES, &written, sizeof written);
        used++;
    }
    return used;
}

/* Reads the pages back that `use` wrote with the same random numbers. */
static void read_back(struct worker *self, const char *array, size_t pages, uint64_t random)
{
    for (size_t i = 0; i < pages / USE_ONE_IN + 1; i++) {
        size_t page = random_below(&random, pages);
        uint64_t word;
        memcpy(&word, array + page * PAGE_BYTES, sizeof word);
        self->written_sum += word_of(self, page);
        self->read_sum += word;
    }
}

static int with_buffers(struct worker *self, bool is_zeroed)
{
    size_t count = pick(12000, 40000);
    char **buffers = map_array(count, sizeof *buffers);
    record_start();
    double started_s = now_s();
    for (size_t i = 0; i < count; i++) {
        buffers[i] = opaque(is_zeroed ? calloc(BUFFER_BYTES, 1) : malloc(BUFFER_BYTES));
        if (buffers[i] == NULL)
            fail_memory(BUFFER_BYTES);
        if (is_zeroed && buffers[i][BUFFER_USED] != 0)
            fail_check("byte of a zeroed buffer", 0, (unsigned char)buffers[i][BUFFER_USED]);
        memset(buffers[i], (int)(i % 251 + 1), BUFFER_USED);
    }
    long peak_kib = resident_kib();
    for (size_t i = 0; i < count; i++) {
        self->written_sum += i % 251 + 1;
        self->read_sum += (unsigned char)buffers[i][BUFFER_USED - 1];
        free(buffers[i]);
    }
    self->operations = count;
    run.seconds = now_s() - started_s;
    record();
    mark("used_kib", (double)(count * PAGE_BYTES / 1024));
    mark("top_kib", (double)peak_kib);
    return print_line(count * BUFFER_BYTES);
}

int main(int argc, char **argv)
{
    begin_case("sparse", argc, argv);
    struct worker *self = &run.workers[0];
    if (variant_is("buffers") || variant_is("zeroed"))
        return with_buffers(self, variant_is("zeroed"));
    uint64_t drawn = drawn_seed();
    if (drawn == 0 && !variant_is("once") && !variant_is("again"))
        fail_variant("once, again, buffers, zeroed");
    size_t bytes = pick((size_t)256 << 20, (size_t)1 << 30), largest = 0, most_used = 0;
    long peak_kib = 0;
    record_start();
    double started_s = now_s();
    for (int i = 0; i < (variant_is("once") ? 1 : TIMES); i++) {
        if (drawn != 0)
            bytes = draw_bytes(&drawn);
        char *array = opaque(calloc(bytes / 8, 8));
        if (array == NULL)
            fail_memory(bytes);
        self->serial = (uint64_t)i + 1;
        size_t pages = bytes / PAGE_BYTES, used = use(self, array, pages, seed_of(self->serial));
        long rss_kib = resident_kib();
        peak_kib = rss_kib > peak_kib ? rss_kib : peak_kib;
        most_used = used > most_used ? used : most_used;
        largest = bytes > largest ? bytes : largest;
        read_back(self, array, pages, seed_of(self->serial));
        free(array);
        self->operations++;
        if (drawn != 0)
            sleep_ms(draw_pause_ms(&drawn));
    }
    run.seconds = now_s() - started_s;
    record();
    mark("used_kib", (double)(most_used * PAGE_BYTES / 1024));
    mark("top_kib", (double)peak_kib);
    return print_line(largest);
}
