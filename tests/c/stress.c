/* Long random work whose every block is checked by its pattern: stress SECONDS THREADS SEED [stopped] [refused]
 *
 * Threads allocate by every function (16 bytes to 4 MiB), keep some blocks, exchange others through a shared array, realloc, free what
 * any thread made, take and give one size many times, trim, ask for statistics, exit with blocks still live and are replaced. Meanwhile
 * one thread trims all the time and two fork; each child checks every block of the array, frees most, allocates anew, runs a thread and
 * ends. The first bad byte or wrong errno, or blocks that are lost at the end, end it with exit status 1 and a line on stderr; the last
 * line of a good run counts what was done.
 *
 * stopped: signals stop threads for a while wherever they are, also in the middle of malloc and free.
 * refused: the kernel refuses an eighth of what is asked for the heap's addresses, drawn by address and length, and all growth beyond
 * 8 MiB. */
#include "seccomp.h"
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/time.h>
#include <time.h>

enum { SLOTS = 768, KEPT = 48, PER_FORK_NS = 15000000, NOT_SET = 4711 };
static const size_t LEAST = 16, MOST = 4 << 20;

struct block { size_t size, alignment; uint64_t seed; unsigned char bytes[]; };

static struct block *slot[SLOTS]; /* Synchronization: whoever exchanges a block out owns it */
static bool stop, is_refused;
static int running, started, seed_of_run;
static uint64_t operations, forks, ended, failed;
static void (*sized_free)(void *, size_t);
static void (*sized_aligned_free)(void *, size_t, size_t);
static FILE *nowhere;

static size_t any_size(uint64_t *random) {
    uint64_t chance = next_random(random) % 1000;
    return random_size(random, LEAST, chance < 930 ? 4 * KIB : chance < 990 ? 128 * KIB : MOST);
}

static size_t bytes_of(const struct block *b) { return b->size - sizeof *b; }

/* Whether a call of malloc's family, before which errno was NOT_SET, gave a block. */
static bool is_given(const void *p, size_t size) {
    CHECK(errno == (p ? NOT_SET : ENOMEM), "%p for %zu bytes, and errno is %d", p, size, errno);
    CHECK(p != NULL || is_refused, "no memory for %zu bytes", size);
    if (p == NULL) __atomic_add_fetch(&failed, 1, __ATOMIC_RELAXED);
    return p != NULL;
}

static void stamp(struct block *b, size_t size, size_t alignment, uint64_t *random) {
    b->size = size, b->alignment = alignment, b->seed = next_random(random);
    fill(b->bytes, bytes_of(b), b->seed);
}

/* NULL where the kernel refuses memory. */
static struct block *make(uint64_t *random) {
    size_t size = sizeof(struct block) + any_size(random), alignment = 16;
    void *p = NULL;
    errno = NOT_SET;
    switch (next_random(random) % 12) {
    case 0: case 1: case 2:
        p = calloc(1, size);
        if (p && (size < 64 * KIB || next_random(random) % 4 == 0)) {
            size_t bad = first_nonzero(p, size);
            CHECK(bad == SIZE_MAX, "calloc(%zu): byte %zu is not zero", size, bad);
        }
        break;
    case 3:
        alignment = (size_t)16 << next_random(random) % 9;
        /* It need not set errno. */
        errno = posix_memalign(&p, alignment, size) == 0 ? NOT_SET : ENOMEM;
        break;
    case 4:
        alignment = (size_t)1 << next_random(random) % 21;
        p = aligned_alloc(alignment, size);
        break;
    case 5:
        size = size / 8 * 8 + 8;
        p = reallocarray(NULL, size / 8, 8);
        break;
    case 6: p = realloc(NULL, size); break;
    case 7:
        alignment = 4096;
        p = next_random(random) % 2 ? valloc(size) : pvalloc(size);
        break;
    default: p = malloc(size);
    }
    if (!is_given(p, size)) return NULL;
    CHECK((uintptr_t)p % (alignment < 16 ? 16 : alignment) == 0, "%p for %zu bytes is not aligned to %zu", p, size, alignment);
    size_t usable = malloc_usable_size(p);
    CHECK(usable >= size, "%zu bytes asked for, %zu usable", size, usable);
    if (next_random(random) % 4 == 0) size = usable;
    struct block *b = p;
    stamp(b, size, alignment, random);
    return b;
}

static void check(const struct block *b) {
    size_t usable = malloc_usable_size((void *)b);
    CHECK(b->size >= sizeof *b && b->size <= usable, "the header of %p says %zu bytes of %zu", (void *)b, b->size, usable);
    CHECK_PATTERN(b->bytes, bytes_of(b), bytes_of(b), b->seed);
}

static void give(struct block *b, uint64_t *random) {
    if (!b) return;
    check(b);
    errno = NOT_SET;
    switch (next_random(random) % 8) {
    case 0: free(realloc(b, b->size / 2 + 1)); break;
    case 1: CHECK(realloc(b, opaque_size(0)) == NULL, "realloc(p, 0) did not return NULL"); break;
    case 2:
        if (sized_free && b->alignment == 16) sized_free(b, b->size);
        else if (sized_aligned_free && b->alignment != 16 && b->alignment < 4096) sized_aligned_free(b, b->alignment, b->size);
        else free(b);
        break;
    default: free(b);
    }
    CHECK(errno == NOT_SET, "a free set errno to %d", errno);
}

static struct block *resize(struct block *b, uint64_t *random) {
    if (!b) return make(random);
    check(b);
    size_t before = bytes_of(b), seed = b->seed, size = sizeof *b + any_size(random), after = size - sizeof *b;
    errno = NOT_SET;
    struct block *resized = realloc(opaque(b), size);
    if (!is_given(resized, size)) {
        CHECK(after > before, "%zu bytes cannot become %zu", before, after);
        check(b);
        return b;
    }
    b = resized;
    CHECK_PATTERN(b->bytes, before, before < after ? before : after, seed);
    stamp(b, size, 16, random);
    return b;
}

static struct block *exchange(struct block *b, uint64_t *random) {
    return __atomic_exchange_n(&slot[next_random(random) % SLOTS], b, __ATOMIC_ACQ_REL);
}

/* One large block that comes and goes, checked each time: what a thread keeps at hand for itself. */
static void turns(uint64_t *random) {
    size_t size = random_size(random, 32 * KIB, 1 << 20);
    for (uint64_t left = random_size(random, 3, 300); left > 0; left--) {
        errno = NOT_SET;
        unsigned char *p = malloc(size);
        uint64_t seed = next_random(random);
        if (!is_given(p, size)) return;
        fill(p, 64, seed), fill(p + size - 64, 64, ~seed);
        if (left % 16 == 0) sched_yield();
        CHECK_PATTERN(p, 64, 64, seed);
        CHECK_PATTERN(p + size - 64, 64, 64, ~seed);
        free(p);
    }
}

static pthread_key_t last_words;
static __thread struct block *last;
/* Runs late in a thread's exit: the thread's last block goes, another comes and goes. */
static void at_thread_exit(void *number) {
    uint64_t random = (uintptr_t)number;
    give(last, &random);
    give(make(&random), &random);
    __atomic_sub_fetch(&running, 1, __ATOMIC_RELEASE);
}

static void start_thread(void);

static void *work(void *argument) {
    uint64_t random = ((uint64_t)seed_of_run << 32 | (uintptr_t)argument) * 0x9E3779B97F4A7C15ull | 1;
    struct block *kept[KEPT] = {0};
    /* Some threads live for a moment, some for long. */
    uint64_t life = random_size(&random, 16, 200000), done = 0;
    while (done < life && !__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        struct block **mine = &kept[next_random(&random) % KEPT];
        uint64_t chance = next_random(&random) % 10000;
        if (chance < 4500) give(*mine, &random), *mine = make(&random);
        else if (chance < 8500) *mine = exchange(*mine, &random);
        else if (chance < 8510) turns(&random);
        else if (chance < 9990) *mine = resize(*mine, &random);
        else if (chance < 9994) malloc_trim(next_random(&random) % 2 * 64 * KIB);
        else if (chance < 9998) CHECK(mallinfo2().uordblks + mallinfo2().hblkhd > 0, "nothing is in use");
        else CHECK(malloc_info(0, nowhere) == 0, "malloc_info failed");
        done++;
    }
    /* Most of what it kept outlives it. */
    for (int i = 0; i < KEPT; i++) give(i % 8 ? exchange(kept[i], &random) : kept[i], &random);
    last = make(&random);
    CHECK(pthread_setspecific(last_words, argument) == 0, "no last words");
    __atomic_add_fetch(&operations, done, __ATOMIC_RELAXED);
    __atomic_add_fetch(&ended, 1, __ATOMIC_RELAXED);
    if (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) start_thread();
    return NULL;
}

static void start_thread(void) {
    pthread_t thread;
    __atomic_add_fetch(&running, 1, __ATOMIC_RELAXED);
    uintptr_t number = __atomic_add_fetch(&started, 1, __ATOMIC_RELAXED);
    int error = pthread_create(&thread, NULL, work, (void *)number);
    CHECK(error == 0, "no thread: error %d", error);
    pthread_detach(thread);
}

static void *work_in_child(void *argument) {
    uint64_t random = (uintptr_t)argument | 1;
    for (int i = 0; i < 200; i++) give(exchange(make(&random), &random), &random);
    return NULL;
}

static void child(struct block **own, uint64_t random) {
    alarm(60);
    for (int i = 0; i < SLOTS; i++)
        if (next_random(&random) % 3) give(__atomic_exchange_n(&slot[i], NULL, __ATOMIC_ACQ_REL), &random);
        else if (slot[i]) check(slot[i]);
    for (int i = 0; i < KEPT; i++) give(own[i], &random), own[i] = make(&random);
    if (next_random(&random) % 4 == 0) malloc_trim(0);
    if (next_random(&random) % 4 == 0) {
        pthread_t thread;
        int error = pthread_create(&thread, NULL, work_in_child, (void *)(uintptr_t)next_random(&random));
        CHECK(error == 0, "no thread in the child: error %d", error);
        pthread_join(thread, NULL);
    }
    for (int i = 0; i < KEPT; i++) give(resize(own[i], &random), &random);
    if (next_random(&random) % 2) _exit(0);
    exit(0);
}

static double seconds_since(const struct timespec *start) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - start->tv_sec) + (double)(now.tv_nsec - start->tv_nsec) / 1e9;
}

static struct timespec start;
static double seconds;

static void *fork_all_the_time(void *argument) {
    uint64_t random = (uint64_t)seed_of_run * 77 + (uintptr_t)argument;
    struct block *own[KEPT];
    for (int i = 0; i < KEPT; i++) own[i] = make(&random);
    while (seconds_since(&start) < seconds) {
        struct timespec pause = {0, next_random(&random) % PER_FORK_NS};
        nanosleep(&pause, NULL);
        pid_t pid = fork();
        if (pid == 0) child(own, next_random(&random) | 1);
        expect_success(pid, "a forked child");
        __atomic_add_fetch(&forks, 1, __ATOMIC_RELAXED);
        int i = next_random(&random) % KEPT;
        own[i] = resize(own[i], &random);
    }
    for (int i = 0; i < KEPT; i++) give(own[i], &random);
    return NULL;
}

static void *trim_all_the_time(void *unused) {
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        malloc_trim(0);
        usleep(500);
    }
    return unused;
}

static void stop_for_a_while(int signal) {
    static uint64_t count;
    uint64_t random = __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED) * 0x9E3779B97F4A7C15ull;
    int error = errno;
    struct timespec pause = {0, next_random(&random) % (next_random(&random) % 8 ? 300000 : 20000000)};
    nanosleep(&pause, NULL);
    errno = error;
    (void)signal;
}

/* Sends signals to threads, which the list of the kernel names. What it allocates for that is nothing that others wait for. */
static void *stop_others_all_the_time(void *unused) {
    uint64_t random = (uint64_t)seed_of_run * 99 + 1;
    pid_t own = (pid_t)syscall(SYS_gettid);
    DIR *threads = opendir("/proc/self/task");
    CHECK(threads != NULL, "no list of threads: errno %d", errno);
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        rewinddir(threads);
        for (struct dirent *entry; (entry = readdir(threads));) {
            pid_t thread = atoi(entry->d_name);
            if (thread == 0 || thread == own || next_random(&random) % 2) continue;
            syscall(SYS_tgkill, getpid(), thread, SIGUSR1);
            usleep(next_random(&random) % 300);
        }
    }
    closedir(threads);
    return unused;
}

/* From now on the heap has a few MiB, and an eighth of what is asked for its addresses is refused. */
static void refuse_some(void) {
    enum { ADDRESS = 16, LENGTH = 24, HEAP_MIB = 8, MOST_MIB = 1 << 20 };
    void *first = malloc(1);
    uint32_t first_mib = (uint32_t)((uintptr_t)first / MIB);
    free(first);
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 4, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mremap, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 2, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        /* In MiB from the heap's beginning; and none of what lies outside of it. */
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ADDRESS), BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 20), BPF_STMT(BPF_MISC | BPF_TAX, 0),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ADDRESS + 4), BPF_STMT(BPF_ALU | BPF_LSH | BPF_K, 12), BPF_STMT(BPF_ALU | BPF_ADD | BPF_X, 0),
        BPF_STMT(BPF_ALU | BPF_SUB | BPF_K, first_mib),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, MOST_MIB, 9, 0), BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, HEAP_MIB, 9, 0),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ADDRESS), BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 12),
        BPF_STMT(BPF_ALU | BPF_MUL | BPF_K, 0x85EBCA6B), BPF_STMT(BPF_MISC | BPF_TAX, 0),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, LENGTH), BPF_STMT(BPF_ALU | BPF_ADD | BPF_X, 0),
        BPF_STMT(BPF_ALU | BPF_MUL | BPF_K, (uint32_t)seed_of_run * 0x9E3779B1u | 1),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 1u << 29, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOMEM)};
    install_filter(filter, COUNT_OF(filter));
    is_refused = true;
}

static size_t used_bytes(void) { return mallinfo2().uordblks + mallinfo2().hblkhd; }

int main(int argc, char **argv) {
    if (argc < 4) {
        fputs("usage: stress SECONDS THREADS SEED [stopped] [refused]\n", stderr);
        return 2;
    }
    seconds = atof(argv[1]);
    int threads = atoi(argv[2]);
    seed_of_run = atoi(argv[3]);
    printf("stress: %g seconds, %d threads, seed %d\n", seconds, threads, seed_of_run);
    fflush(stdout);
    sized_free = (void (*)(void *, size_t))dlsym(RTLD_DEFAULT, "free_sized");
    sized_aligned_free = (void (*)(void *, size_t, size_t))dlsym(RTLD_DEFAULT, "free_aligned_sized");
    nowhere = fopen("/dev/null", "w");
    CHECK(nowhere && pthread_key_create(&last_words, at_thread_exit) == 0, "cannot begin");

    bool is_stopped = false;
    for (int i = 4; i < argc; i++) {
        if (strcmp(argv[i], "refused") == 0) refuse_some();
        else if (strcmp(argv[i], "stopped") == 0) is_stopped = true;
        else CHECK(false, "not known: %s", argv[i]);
    }
    size_t used_before = used_bytes();

    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int i = 0; i < threads; i++) start_thread();
    pthread_t trimmer, forker, stopper;
    int error = pthread_create(&trimmer, NULL, trim_all_the_time, NULL) | pthread_create(&forker, NULL, fork_all_the_time, (void *)1);
    if (is_stopped) {
        struct sigaction action = {.sa_handler = stop_for_a_while, .sa_flags = SA_RESTART};
        error |= sigaction(SIGUSR1, &action, NULL) | pthread_create(&stopper, NULL, stop_others_all_the_time, NULL);
    }
    CHECK(error == 0, "no thread: error %d", error);
    fork_all_the_time((void *)3);
    pthread_join(forker, NULL);
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    for (int waited = 0; __atomic_load_n(&running, __ATOMIC_ACQUIRE) > 0; waited++) {
        CHECK(waited < 60000, "%d threads do not end", running);
        usleep(1000);
    }
    pthread_join(trimmer, NULL);
    if (is_stopped) pthread_join(stopper, NULL);
    uint64_t random = 1;
    for (int i = 0; i < SLOTS; i++) give(slot[i], &random);
    /* libc keeps a block for each stack that it keeps. */
    CHECK(!preloaded() || used_bytes() < used_before + 64 * KIB, "%zu bytes are in use at the end, %zu at the beginning", used_bytes(),
          used_before);
    printf("stress: passed, %llu operations, %llu threads, %llu forks, %llu times no memory\n", (unsigned long long)operations,
           (unsigned long long)ended, (unsigned long long)forks, (unsigned long long)failed);
    return 0;
}
