/*
 * raw_brk: a program that moves the break itself, with a little malloc between. The allocator must live with it.
 *
 * Source: the brk() loop of "A Study in Malloc" (Ezolt, ALS 2001), which takes malloc away to see who causes the
 * faults. A turn grows the break by a window, touches every page of it, replaces some small blocks, finds the window
 * as it was written and shrinks the break again. An allocator that has moved the break in the meantime, as glibc's may,
 * has buried the window: it is left where it is, and after MAX_BURIED such turns the last one serves again.
 *
 * Work: the turns are a total, divided among the threads; a lock around each turn lets one thread at a time touch the
 * break and the allocator, since sbrk knows no threads. Live peak: the sum of the threads' own peaks of blocks from
 * malloc, a bound; the window is not the allocator's and not counted.
 */
#include "workload.h"

enum { PAGE = 4096, MAX_BURIED = 64, REPLACEMENTS_A_TURN = 16 };

static pthread_mutex_t turn_lock = PTHREAD_MUTEX_INITIALIZER; /* the fields below, the break, the allocator */
static char *buried_window;
static int buried_count;

static pthread_barrier_t all_done;
static void **blocks;
static size_t block_count, turns, window_bytes;

static char *open_window(void)
{
    if (buried_count == MAX_BURIED)
        return buried_window;
    char *window = sbrk((intptr_t)window_bytes);
    if (window == (void *)-1)
        fail_memory(window_bytes);
    return window;
}

static void close_window(char *window)
{
    if (window == buried_window)
        return;
    if (sbrk(0) == window + window_bytes) {
        sbrk(-(intptr_t)window_bytes);
    } else {
        buried_window = window;
        buried_count++;
    }
}

static void touch_window(char *window, char value)
{
    for (size_t offset = 0; offset < window_bytes; offset += PAGE)
        window[offset] = value;
}

static void check_window(struct worker *self, const char *window, char expected)
{
    for (size_t offset = 0; offset < window_bytes; offset += PAGE)
        if (window[offset] != expected)
            fail_check("page of the program's own break", (uint8_t)expected, (uint8_t)window[offset]);
    self->written_sum += (uint8_t)expected;
    self->read_sum += (uint8_t)window[0];
}

static void replace_some(struct worker *self)
{
    void **own = blocks + part_begin(block_count, self->index);
    size_t own_count = part_of(block_count, self);
    for (int i = 0; i < REPLACEMENTS_A_TURN; i++) {
        size_t slot = random_below(&self->random, own_count);
        if (own[slot] != NULL)
            drop_block(self, own[slot]);
        own[slot] = make_block(self, random_size(&self->random, 4, 13));
    }
}

static void body(struct worker *self)
{
    size_t own_turns = part_of(turns, self);
    for (size_t turn = 0; turn < own_turns; turn++) {
        pthread_mutex_lock(&turn_lock);
        char *window = open_window();
        touch_window(window, (char)turn);
        replace_some(self);
        check_window(self, window, (char)turn);
        close_window(window);
        pthread_mutex_unlock(&turn_lock);
    }
    /* A thread that ends gives memory back, perhaps by the break: none may end while another has its turn. */
    pthread_barrier_wait(&all_done);
}

int main(int argc, char **argv)
{
    begin("raw_brk", argc, argv);
    block_count = pick(2000, 16000) + (size_t)run.threads;
    turns = pick(2000, 1000);
    window_bytes = pick((size_t)512 << 10, (size_t)4 << 20);
    blocks = map_array(block_count, sizeof *blocks);
    pthread_barrier_init(&all_done, NULL, (unsigned)run.threads);
    run_threads(body);
    for (size_t i = 0; i < block_count; i++)
        if (blocks[i] != NULL)
            drop_block(&run.workers[0], blocks[i]);
    return finish(sum_of_peaks());
}
