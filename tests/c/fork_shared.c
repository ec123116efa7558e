/* What a forked child frees of its parent's small blocks, and allocates, leaves the pages that both share alone. A child of the child does
 * so, too, and one that replaces all of them has hardly more memory than it would have alone. Blocks are whole throughout. The argument
 * is the size of the largest. */
#include "check.h"
#include <pthread.h>
#include <sys/wait.h>

enum { TOTAL = 20 * MIB, MOST = TOTAL / 256 };
static int largest, count;
struct block { uint16_t size; uint16_t seed; unsigned char bytes[]; };
static struct block *blocks[MOST];

static struct block *make(uint64_t *random) {
    size_t size = random_size(random, 8, largest);
    struct block *block = malloc(size);
    CHECK(block != NULL, "no memory for %zu", size);
    block->size = size - sizeof *block, block->seed = next_random(random);
    fill(block->bytes, block->size, block->seed);
    return block;
}
static void drop(int i) {
    struct block *block = blocks[i];
    if (!block) return;
    CHECK_PATTERN(block->bytes, block->size, block->size, block->seed);
    free(block);
    blocks[i] = NULL;
}

/* Pages of this process alone. */
static size_t private_bytes(void) { return stated_bytes("/proc/self/smaps_rollup", "Private_Dirty:"); }

static void replace(uint64_t *random, int some) {
    for (int n = 0; n < some; n++) drop(next_random(random) % count);
    for (int i = 0; i < count; i++) if (!blocks[i]) blocks[i] = make(random);
}
static void *replace_some(void *random) {
    replace(random, count / 50);
    return NULL;
}

static void in_child(void (*act)(void), const char *what) {
    pid_t child = fork();
    if (child == 0) {
        alarm(300);
        act();
        _exit(0);
    }
    expect_success(child, what);
}

static void frees_a_tenth(void) {
    uint64_t random = 2;
    size_t before = private_bytes();
    for (int n = 0; n < count / 10; n++) drop(next_random(&random) % count);
    size_t more = private_bytes() - before;
    CHECK(!preloaded() || more < 2 * MIB, "a tenth freed: %zu KiB of pages more", more / KIB);
}
static void replaces_a_tenth(void) {
    uint64_t random = 3;
    size_t before = private_bytes();
    replace(&random, count / 10);
    size_t more = private_bytes() - before;
    CHECK(!preloaded() || more < 5 * MIB, "a tenth replaced: %zu KiB of pages more", more / KIB);
}
static void replaces_and_forks(void) {
    replaces_a_tenth();
    in_child(replaces_a_tenth, "the child's child");
}
static void replaces_all(void) {
    uint64_t random = 4;
    size_t before = rss_bytes();
    for (int turn = 0; turn < 12; turn++) replace(&random, count / 5);
    size_t after = rss_bytes();
    CHECK(!preloaded() || after < before + before / 4, "all replaced: %zu KiB resident, %zu before", after / KIB,
          before / KIB);
    for (int i = 0; i < count; i++) drop(i);
    after = kept_bytes();
    CHECK(!preloaded() || after < before / 2, "all freed and trimmed: %zu KiB resident", after / KIB);
}
static void replaces_in_threads(void) {
    for (uint64_t turn = 1; turn < 8; turn++) {
        uint64_t random = turn, others = turn + 100;
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, replace_some, &others) == 0, "no thread");
        pthread_join(thread, NULL);
        replace_some(&random);
    }
    for (int i = 0; i < count; i++) drop(i);
}

int main(int arguments, char **argument) {
    CHECK(arguments == 2, "the size of the largest block is missing");
    largest = atoi(argument[1]);
    count = TOTAL / (largest / 2);
    uint64_t random = 1;
    for (int i = 0; i < count; i++) blocks[i] = make(&random);
    in_child(frees_a_tenth, "a child that frees");
    in_child(replaces_a_tenth, "a child that replaces");
    in_child(replaces_and_forks, "a child that forks");
    in_child(replaces_all, "a child that replaces all");
    in_child(replaces_in_threads, "a child with threads");
    /* With other threads' blocks among them. */
    replaces_in_threads();
    for (int i = 0; i < count; i++) blocks[i] = make(&random);
    in_child(replaces_a_tenth, "a child of a process with threads");
    in_child(replaces_in_threads, "a child with threads of a process with threads");
    in_child(replaces_all, "a child that replaces all of a process with threads");
    return 0;
}
