/*
 * hundred: many processes that each do little, as hundreds of clients of one server do. What does each of them cost?
 *
 * Source: "Using a customized malloc on AIX 5.2 and 5.3" (2008): "hundreds of clients at the same time". The program starts
 * itself 100 times (small: 20); each of those makes 500 blocks of 16 bytes to 2 KiB (`little`) or 2,000 of 16 bytes to
 * 8 KiB (`some`), keeps every tenth, and waits. Random: `little`, one block of a drawn size more, written and freed, and a
 * drawn pause after it.
 *
 * Work: all of them together. After one second in which nobody calls anything, private_kib is the mean over the processes
 * of their private pages (smaps_rollup), worst_kib the largest. Live peak: 0, for no block is the first process's own.
 */
#include "seed_case.h"
#include <sys/wait.h>

enum { MAX_BLOCKS = 2000, KEEP_ONE_IN = 10, MAX_PROCESSES = 100, IDLE_MS = 1000 };

static void *blocks[MAX_BLOCKS];
static int block_count, largest_power;

/* In each of the many: works, tells by one byte, and waits until its input ends. */
static void be_one(struct worker *self, uint64_t drawn)
{
    for (int i = 0; i < block_count; i++)
        blocks[i] = make_block(self, random_size(&self->random, 4, largest_power));
    for (int i = 0; i < block_count; i++)
        if (i % KEEP_ONE_IN != 0)
            drop_block(self, blocks[i]);
    if (drawn != 0) {
        size_t bytes = draw_bytes(&drawn) / 4;
        char *block = allocate(bytes);
        touch_pages(self, block, bytes);
        free(block);
        sleep_ms(draw_pause_ms(&drawn));
    }
    char byte = 'd';
    if (write(STDOUT_FILENO, &byte, 1) != 1 || read(STDIN_FILENO, &byte, 1) < 0)
        _exit(2);
    for (int i = 0; i < block_count; i += KEEP_ONE_IN)
        drop_block(self, blocks[i]);
    _exit(self->live_bytes == 0 && self->read_sum == self->written_sum ? 0 : 1);
}

static long private_kib(pid_t process)
{
    char text[2048];
    snprintf(text, sizeof text, "/proc/%d/smaps_rollup", (int)process);
    int file = open(text, O_RDONLY);
    ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (file >= 0)
        close(file);
    if (length <= 0)
        fail(2, "hundred: cannot read smaps_rollup of a process it started");
    text[length] = '\0';
    const char *clean = strstr(text, "\nPrivate_Clean:"), *dirty = strstr(text, "\nPrivate_Dirty:");
    if (clean == NULL || dirty == NULL)
        fail(2, "hundred: smaps_rollup has no private pages");
    return strtol(clean + 15, NULL, 10) + strtol(dirty + 15, NULL, 10);
}

int main(int argc, char **argv)
{
    begin_case("hundred", argc, argv);
    uint64_t drawn = drawn_seed();
    if (drawn == 0 && !variant_is("little") && !variant_is("some"))
        fail_variant("little, some");
    block_count = variant_is("some") ? MAX_BLOCKS : 500;
    largest_power = variant_is("some") ? 13 : 11;
    if (getenv("HUNDRED_IS_ONE") != NULL)
        be_one(&run.workers[0], drawn);
    int count = (int)pick(20, MAX_PROCESSES), to_children[2], from_children[2];
    if (pipe2(to_children, O_CLOEXEC) != 0 || pipe2(from_children, O_CLOEXEC) != 0)
        fail(2, "hundred: cannot make a pipe: %s", strerror(errno));
    setenv("HUNDRED_IS_ONE", "1", 1);
    record_start();
    double started_s = now_s();
    pid_t processes[MAX_PROCESSES];
    for (int i = 0; i < count; i++) {
        processes[i] = fork();
        if (processes[i] < 0)
            fail(2, "hundred: cannot start process %d of %d: %s (see ulimit -u)", i + 1, count, strerror(errno));
        if (processes[i] == 0) {
            dup2(to_children[0], STDIN_FILENO);
            dup2(from_children[1], STDOUT_FILENO);
            execv("/proc/self/exe", argv);
            _exit(2);
        }
    }
    close(from_children[1]);
    for (int ready = 0; ready < count; ready++) {
        char byte;
        if (read(from_children[0], &byte, 1) != 1)
            fail(1, "hundred: only %d of %d processes did their work", ready, count);
    }
    run.seconds = now_s() - started_s;
    record_idle(IDLE_MS);
    long sum_kib = 0, worst_kib = 0;
    for (int i = 0; i < count; i++) {
        long kib = private_kib(processes[i]);
        sum_kib += kib;
        worst_kib = kib > worst_kib ? kib : worst_kib;
    }
    close(to_children[1]);
    for (int i = 0; i < count; i++) {
        int status;
        if (waitpid(processes[i], &status, 0) < 0 || status != 0)
            fail(1, "hundred: process %d of %d ended with status %d", i + 1, count, status);
    }
    run.workers[0].operations = (uint64_t)count * (uint64_t)block_count;
    mark("private_kib", (double)sum_kib / count);
    mark("worst_kib", (double)worst_kib);
    return print_line(0);
}
