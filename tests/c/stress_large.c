/* Large blocks of drawn sizes whose every word is checked: stress_large THREADS OPERATIONS SEED
 *
 * Threads allocate, by several functions, grow, shrink, exchange through a shared array, trim and free blocks of 64 KiB to 6 MiB, most of
 * which are taken from what others left in pieces. Some let the kernel split a block's mapping first (a page that is read-only for a
 * moment, advice, a lock). Each forks now and then; the child checks all blocks that are its own or in the array, frees some and goes on
 * a while. Each thread's operations follow from the seed. */
#include "check.h"
#include <pthread.h>
#include <sys/mman.h>

enum { OWN = 10, SHARED = 16, THREADS_MAX = 16, IN_CHILD = 12, PAGE = 4096 };

struct block { uint64_t *words; size_t bytes; uint64_t seed; };
struct worker { uint64_t random; struct block own[OWN]; size_t operations, forks; };

static struct block shared[SHARED];
static pthread_mutex_t exchange_lock = PTHREAD_MUTEX_INITIALIZER;

static void hold(void) { pthread_mutex_lock(&exchange_lock); }
static void let_go(void) { pthread_mutex_unlock(&exchange_lock); }

static uint64_t word_at(uint64_t seed, size_t at) { return (seed + at) * 0x9E3779B97F4A7C15ull; }

static void fill_words(struct block *b, uint64_t seed) {
    b->seed = seed;
    for (size_t at = 0; at < b->bytes / 8; at++) b->words[at] = word_at(seed, at);
}

static void check_words(const struct block *b, size_t bytes) {
    for (size_t at = 0; at < bytes / 8; at++)
        CHECK(b->words[at] == word_at(b->seed, at), "word %zu of a block of %zu at %p holds %#llx", at, b->bytes, (void *)b->words,
              (unsigned long long)b->words[at]);
}

static size_t any_bytes(uint64_t *random) {
    size_t bytes = random_size(random, 64 * KIB, next_random(random) % 4 ? MIB : 6 * MIB);
    return bytes / 8 * 8;
}

static void make(struct block *b, uint64_t *random) {
    void *p = NULL;
    size_t bytes = any_bytes(random), alignment = 16;
    switch (next_random(random) % 8) {
    case 0: case 1:
        p = calloc(1, bytes);
        CHECK(p != NULL, "calloc(%zu): errno %d", bytes, errno);
        CHECK(first_nonzero(p, bytes) == SIZE_MAX, "calloc(%zu): byte %zu is not zero", bytes, first_nonzero(p, bytes));
        break;
    case 2:
        alignment = (size_t)4096 << next_random(random) % 10;
        CHECK(posix_memalign(&p, alignment, bytes) == 0, "posix_memalign(%zu, %zu) failed", alignment, bytes);
        break;
    default: p = malloc(bytes);
    }
    CHECK(p != NULL && (uintptr_t)p % alignment == 0, "%p for %zu bytes at %zu, errno %d", p, bytes, alignment, errno);
    CHECK(malloc_usable_size(p) >= bytes, "%zu of %zu bytes are usable", malloc_usable_size(p), bytes);
    *b = (struct block){.words = p, .bytes = bytes};
    fill_words(b, next_random(random));
}

static void drop(struct block *b) {
    if (b->words == NULL) return;
    check_words(b, b->bytes);
    free(b->words);
    b->words = NULL;
}

static void resize(struct block *b, uint64_t *random) {
    size_t before = b->bytes, after = next_random(random) % 2 ? any_bytes(random) : before + before / 16 / 8 * 8;
    if (after > 12 * MIB) after = any_bytes(random);
    b->words = realloc(b->words, after);
    CHECK(b->words != NULL, "realloc to %zu: errno %d", after, errno);
    b->bytes = after;
    check_words(b, before < after ? before : after);
    fill_words(b, next_random(random));
}

/* Leaves the block as it was, but for the mappings that it lies in. */
static void split(struct block *b, uint64_t *random) {
    char *start = (char *)(((uintptr_t)b->words + PAGE - 1) & -(uintptr_t)PAGE);
    size_t pages = ((char *)b->words + b->bytes - start) / PAGE, from = next_random(random) % pages;
    size_t bytes = (1 + next_random(random) % (pages - from)) * PAGE;
    char *part = start + from * PAGE;
    switch (next_random(random) % 4) {
    case 0:
        CHECK(mprotect(part, bytes, PROT_READ) == 0, "mprotect: errno %d", errno);
        CHECK(mprotect(part, bytes, PROT_READ | PROT_WRITE) == 0, "mprotect back: errno %d", errno);
        break;
    case 1: madvise(part, bytes, MADV_HUGEPAGE); break;
    case 2:
        CHECK(madvise(part, bytes, MADV_DONTFORK) == 0, "madvise: errno %d", errno);
        CHECK(madvise(part, bytes, MADV_DOFORK) == 0, "madvise back: errno %d", errno);
        break;
    default:
        if (mlock(part, PAGE) == 0 && next_random(random) % 4) munlock(part, PAGE);
    }
}

static void exchange(struct block *b, uint64_t *random) {
    struct block *other = &shared[next_random(random) % SHARED], kept;
    hold();
    kept = *other, *other = *b, *b = kept;
    let_go();
}

static void operate(struct worker *w) {
    struct block *b = &w->own[next_random(&w->random) % OWN];
    unsigned chance = next_random(&w->random) % 100;
    if (b->words == NULL) make(b, &w->random);
    else if (chance < 45) drop(b);
    else if (chance < 65) resize(b, &w->random);
    else if (chance < 85) exchange(b, &w->random);
    else if (chance < 97) split(b, &w->random);
    else if (chance < 98) malloc_trim(0);
    else check_words(b, b->bytes);
}

static void *work_in_child(void *argument) {
    struct worker own = {.random = (uintptr_t)argument | 1};
    for (int i = 0; i < IN_CHILD; i++) operate(&own);
    return NULL;
}

static void child(struct worker *w) {
    alarm(60);
    for (int i = 0; i < OWN; i++)
        if (w->own[i].words) check_words(&w->own[i], w->own[i].bytes);
    for (int i = 0; i < SHARED; i++)
        if (next_random(&w->random) % 2) drop(&shared[i]);
    pthread_t thread;
    int error = pthread_create(&thread, NULL, work_in_child, (void *)(uintptr_t)next_random(&w->random));
    CHECK(error == 0, "no thread in the child: error %d", error);
    for (int i = 0; i < IN_CHILD; i++) operate(w);
    pthread_join(thread, NULL);
    for (int i = 0; i < OWN; i++) drop(&w->own[i]);
    _exit(0);
}

static void *work(void *argument) {
    struct worker *w = argument;
    for (size_t done = 0; done < w->operations; done++) {
        if (next_random(&w->random) % w->operations < w->forks) {
            /* So that the array is whole in the child. */
            hold();
            pid_t pid = fork();
            let_go();
            if (pid == 0) child(w);
            expect_success(pid, "a forked child");
        }
        operate(w);
    }
    for (int i = 0; i < OWN; i++) drop(&w->own[i]);
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc == 4 && atoi(argv[1]) <= THREADS_MAX, "usage: stress_large THREADS OPERATIONS SEED, at most %d threads", THREADS_MAX);
    int threads = atoi(argv[1]);
    static struct worker workers[THREADS_MAX];
    pthread_t thread[THREADS_MAX];
    size_t used = mallinfo2().uordblks + mallinfo2().hblkhd;
    for (int i = 0; i < threads; i++) {
        workers[i] = (struct worker){.random = (strtoull(argv[3], NULL, 10) * 64 + i + 1) * 0x9E3779B97F4A7C15ull | 1,
                                     .operations = strtoull(argv[2], NULL, 10), .forks = 4};
        /* One thread: the process has no other. */
        if (threads == 1) work(&workers[i]);
        else CHECK(pthread_create(&thread[i], NULL, work, &workers[i]) == 0, "no thread %d", i);
    }
    for (int i = 0; i < threads && threads > 1; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < SHARED; i++) drop(&shared[i]);
    size_t after = mallinfo2().uordblks + mallinfo2().hblkhd;
    CHECK(!preloaded() || after < used + 64 * KIB, "%zu bytes are in use after all were freed, %zu before", after, used);
    return 0;
}
