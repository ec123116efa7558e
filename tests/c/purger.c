/* The purger gives back what the program leaves lying, and is there only when needed. The argument names the case.
 * Waiting has a deadline far beyond what it should take: the machine may be busy. */
#include "seccomp.h"
#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

enum { DEADLINE_MS = 20000, THREADS = 8, BLOCKS = 100000 };

static pthread_barrier_t worked, leave;

static void sleep_ms(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}
/* Threads of this process called "faultless", and in *all how many there are in all; no allocation. */
static int purgers(int *all) {
    static char bytes[8192];
    int folder = open("/proc/self/task", O_RDONLY | O_DIRECTORY), found = 0;
    long got;
    *all = 0;
    while ((got = getdents64(folder, bytes, sizeof bytes)) > 0)
        for (long at = 0; at < got;) {
            struct dirent64 *entry = (struct dirent64 *)(bytes + at);
            at += entry->d_reclen;
            if (entry->d_name[0] == '.') continue;
            char path[64], name[32] = "";
            snprintf(path, sizeof path, "/proc/self/task/%.20s/comm", entry->d_name);
            int file = open(path, O_RDONLY);
            if (file >= 0) {
                ssize_t ignored = read(file, name, sizeof name - 1);
                (void)ignored;
                close(file);
            }
            *all += 1;
            found += strcmp(name, "faultless\n") == 0;
        }
    close(folder);
    return found;
}
static int purgers_now(void) {
    int all;
    return purgers(&all);
}
/* Waits, without a call to the allocator, until no more than `allowed` is resident beyond `start`. */
static void expect_given_back(size_t start, size_t allowed, const char *what) {
    for (int waited = 0; rss_bytes() > start + allowed; waited += 50) {
        CHECK(waited < DEADLINE_MS, "%s: %zu KiB resident more than at the start, allowed are %zu; purgers: %d", what,
              (rss_bytes() - start) / KIB, allowed / KIB, purgers_now());
        sleep_ms(50);
    }
}
static void fill_and_free(unsigned seed, size_t survivors_every) {
    size_t bytes = BLOCKS * sizeof(char *);
    char **block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t random = seed;
    for (size_t i = 0; i < BLOCKS; i++) {
        size_t size = 64 + next_random(&random) % 449;
        memset(block[i] = malloc(size), 1, size);
    }
    for (size_t i = BLOCKS - 1; i > 0; i--) {
        size_t other = next_random(&random) % (i + 1);
        char *p = block[i];
        block[i] = block[other], block[other] = p;
    }
    for (size_t i = 0; i < BLOCKS; i++)
        if (survivors_every == 0 || i % survivors_every != 0) free(block[i]);
    munmap(block, bytes);
}
static void *work_and_park(void *seed) {
    fill_and_free((unsigned)(uintptr_t)seed, 0);
    pthread_barrier_wait(&worked);
    pthread_barrier_wait(&leave);
    return NULL;
}
static void *park(void *unused) {
    (void)unused;
    pthread_barrier_wait(&leave);
    return NULL;
}
static pid_t parked;
static void *say_so_and_park(void *unused) {
    parked = gettid();
    pthread_barrier_wait(&worked);
    return park(unused);
}
/* Waits until the thread sleeps: in a forked child nothing tells of it but its time on a CPU, which the kernel books then. A busy
 * machine may let it wait for long. */
static pthread_t start_parked(void) {
    pthread_t thread;
    pthread_barrier_init(&worked, NULL, 2);
    pthread_barrier_init(&leave, NULL, 2);
    CHECK(pthread_create(&thread, NULL, say_so_and_park, NULL) == 0, "no thread");
    pthread_barrier_wait(&worked);
    char path[64], stat[128] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", parked);
    for (int waited = 0; strstr(stat, ") S ") == NULL; waited++) {
        CHECK(waited < DEADLINE_MS, "the other thread does not park: %s", stat);
        if (waited > 0) sleep_ms(1);
        int file = open(path, O_RDONLY);
        CHECK(file >= 0 && read(file, stat, sizeof stat - 1) > 0, "%s cannot be read", path);
        close(file);
    }
    return thread;
}
static void end_parked(pthread_t thread) {
    pthread_barrier_wait(&leave);
    pthread_join(thread, NULL);
}

static void wait_until_it_leaves(const char *why) {
    sleep_ms(200); /* one that was just started has its name by then */
    for (int waited = 0; purgers_now() > 0; waited += 50) {
        CHECK(waited < DEADLINE_MS, "%s, but the purger stays", why);
        sleep_ms(50);
    }
}

static void parked_threads(void) {
    pthread_t thread[THREADS];
    pthread_barrier_init(&worked, NULL, THREADS + 1);
    pthread_barrier_init(&leave, NULL, THREADS + 1);
    size_t start = rss_bytes();
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&thread[i], NULL, work_and_park, (void *)(uintptr_t)(i + 1)) == 0, "no thread");
    pthread_barrier_wait(&worked);
    expect_given_back(start, 4 * MIB + THREADS * 32 * KIB, "threads that freed everything are parked");
    pthread_barrier_wait(&leave);
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
}
static void large_block(void) {
    pthread_t other = start_parked();
    size_t start = rss_bytes();
    for (int round = 0; round < 3; round++) {
        char *p = malloc(128 * MIB);
        memset(p, 1, 128 * MIB);
        free(p);
    }
    expect_given_back(start, 2 * MIB, "128 MiB freed three times beside another thread");
    end_parked(other);
}
/* What comes back again and again in bursts says nothing of more than one burst: when the purger has left, nobody holds more. */
static void small_blocks_after_bursts(void) {
    enum { SIZE = 1000, BURST = 64 * 1024, MANY = 4 * BURST };
    pthread_t other = start_parked();
    size_t start = rss_bytes(), bytes = MANY * sizeof(char *);
    char **block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int burst = 0; burst < 7; burst++) {
        int count = burst < 6 ? BURST : MANY;
        for (int i = 0; i < count; i++) memset(block[i] = malloc(SIZE), 1, SIZE);
        /* Given back, and missed soon after. */
        if (burst < 6)
            for (int i = 0; i < count; i++) free(block[i]);
        sleep_ms(400);
    }
    wait_until_it_leaves("nothing left to give back");
    for (int i = 0; i < MANY; i++) free(block[i]);
    munmap(block, bytes);
    expect_given_back(start, 8 * MIB, "256 MiB freed in small blocks after bursts of 64 MiB");
    end_parked(other);
}
/* Who has nothing but realloc has a purger, too. */
static void resized_block(void) {
    pthread_t other = start_parked();
    char *block = malloc(MIB);
    wait_until_it_leaves("nothing to give back");
    size_t start = rss_bytes();
    for (int round = 0; round < 3; round++) {
        block = realloc(block, 128 * MIB);
        memset(block, 1, 128 * MIB);
        block = realloc(block, MIB);
    }
    expect_given_back(start, 2 * MIB, "a block that grew to 128 MiB and shrank three times beside another thread");
    free(block);
    end_parked(other);
}
/* What lies idle goes, but for 32 MiB, whatever comes and goes beside it. */
static void beside_a_busy_thread(void) {
    enum { IDLE = 100, BUSY = 8 };
    pthread_t other = start_parked();
    static char *idle[IDLE], *busy[BUSY];
    size_t start = rss_bytes();
    for (int i = 0; i < IDLE; i++) {
        idle[i] = malloc(2 * MIB);
        memset(idle[i], 1, 2 * MIB);
    }
    for (int i = 0; i < IDLE; i++) free(idle[i]);
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do {
        // Asking for RSS takes time in which nothing comes and goes.
        for (int turn = 0; turn < 2000; turn++) {
            for (int i = 0; i < BUSY; i++) {
                busy[i] = malloc(MIB);
                memset(busy[i], 1, MIB);
            }
            for (int i = 0; i < BUSY; i++) free(busy[i]);
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
        CHECK((now.tv_sec - begin.tv_sec) * 1000 < DEADLINE_MS, "%zu KiB resident more than at the start",
              (rss_bytes() - start) / KIB);
    } while (rss_bytes() > start + 48 * MIB);
    end_parked(other);
}
static void survivors(void) {
    pthread_t other = start_parked();
    size_t start = rss_bytes(), every = 1000;
    fill_and_free(17, every);
    expect_given_back(start, BLOCKS / every * 4 * KIB + 2 * MIB, "all but one in a thousand blocks freed");
    end_parked(other);
}
/* Small blocks keep their contents when the free pages around them go. */
static void contents(void) {
    enum { COUNT = 60000 };
    static unsigned char *block[COUNT];
    pthread_t other = start_parked();
    for (int round = 0; round < 2; round++) {
        size_t before = rss_bytes();
        for (size_t i = 0; i < COUNT; i++)
            if (block[i] == NULL) memset(block[i] = malloc(200), (int)(i % 251), 200);
        size_t full = rss_bytes();
        for (size_t i = 0; i < COUNT; i++)
            if (i % 100 != 0) free(block[i]), block[i] = NULL;
        if (round == 0) expect_given_back(before, (full - before) / 2, "99 of 100 blocks freed");
        for (size_t i = 0; i < COUNT; i += 100)
            for (size_t at = 0; at < 200; at++)
                CHECK(block[i][at] == i % 251, "block %zu holds %d at %zu", i, block[i][at], at);
    }
    end_parked(other);
}
static void leaves(void) {
    pthread_t other = start_parked();
    fill_and_free(5, 0);
    CHECK(purgers_now() == 1 || !preloaded(), "threads and free memory, but %d purgers", purgers_now());
    for (int round = 0; round < 2; round++) {
        wait_until_it_leaves("nothing left to give back");
        fill_and_free(6, 0);
        CHECK(purgers_now() == 1 || !preloaded(), "memory was freed again, but no purger came");
    }
    end_parked(other);
}
/* More stacks than libc keeps (40 MiB): it frees the threads' memory under a lock that pthread_create takes. */
static void threads_end_when_it_has_left(void) {
    pthread_t thread[2 * THREADS];
    for (int round = 0; round < 3; round++) {
        pthread_barrier_init(&leave, NULL, 2 * THREADS + 1);
        fill_and_free(5, 0);
        for (int i = 0; i < 2 * THREADS; i++) CHECK(pthread_create(&thread[i], NULL, park, NULL) == 0, "no thread");
        wait_until_it_leaves("nothing left to give back");
        pthread_barrier_wait(&leave);
        for (int i = 0; i < 2 * THREADS; i++) pthread_join(thread[i], NULL);
    }
}
/* Who works for longer than the purger needs to give everything back faults it in once, not each time. Blocks too small for huge pages. */
static void waits_for_long_turns(void) {
    enum { TURNS = 4, LARGE_BLOCKS = 16 };
    char *block[LARGE_BLOCKS];
    struct rusage before, after;
    pthread_t other = start_parked();
    getrusage(RUSAGE_SELF, &before);
    for (int turn = 0; turn < TURNS; turn++) {
        for (int i = 0; i < LARGE_BLOCKS; i++) memset(block[i] = opaque(malloc(MIB)), 1, MIB);
        sleep_ms(1000);
        for (int i = 0; i < LARGE_BLOCKS; i++) free(block[i]);
    }
    getrusage(RUSAGE_SELF, &after);
    long faults = after.ru_minflt - before.ru_minflt, pages = LARGE_BLOCKS * (long)(MIB / 4096);
    CHECK(faults < 2 * pages, "%ld faults, the blocks have %ld pages", faults, pages);
    end_parked(other);
}
static void none_with_one_thread(void) {
    fill_and_free(5, 0);
    sleep_ms(100);
    int all;
    CHECK(purgers(&all) == 0 && all == 1, "a process of one thread has %d", all);
}
static void *allocate(void *unused) {
    free(opaque(malloc(2 * MIB)));
    return unused;
}
/* libc goes on to say that there are threads; who is alone calls unshare, or closes a sandbox. */
static void none_when_alone_again(void) {
    pthread_t thread[2];
    for (int i = 0; i < 2; i++) CHECK(pthread_create(&thread[i], NULL, allocate, NULL) == 0, "no thread");
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    int all;
    wait_until_it_leaves("one thread is left");
    for (int i = 0; i < 20; i++) {
        fill_and_free(5, 0);
        free(opaque(malloc(2 * MIB)));
        CHECK(purgers(&all) == 0 && all == 1, "one thread was left, now there are %d", all);
    }
}
/* Run with a price of memory at which what nobody needs is looked at every 2.9 s. */
static void holds_small_blocks_longer(void) {
    pthread_t other = start_parked();
    size_t start = rss_bytes();
    struct timespec begin, now;
    fill_and_free(5, 0);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (;;) {
        size_t rss = rss_bytes();
        clock_gettime(CLOCK_MONOTONIC, &now);
        long ms = (now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000;
        if (ms > 2000) break;
        CHECK(rss > start + 10 * MIB, "after %ld ms %zu KiB are resident more than at the start", ms,
              rss > start ? (rss - start) / KIB : 0);
        sleep_ms(50);
    }
    expect_given_back(start, 2 * MIB, "freed small blocks at a low price");
    end_parked(other);
}
/* What it could give back is less than its stack and its looks take. */
static void none_below_a_mib(void) {
    pthread_t other = start_parked();
    char *small[8];
    for (size_t i = 0; i < COUNT_OF(small); i++) small[i] = opaque(malloc(100 * (i + 1)));
    for (size_t i = 0; i < COUNT_OF(small); i++) free(small[i]);
    int all;
    CHECK(purgers(&all) == 0 && all == 2, "two threads and some KiB, but %d threads", all);
    char *block = opaque(malloc(2 * MIB));
    /* It has its name a moment after it is there. */
    for (int waited = 0; preloaded() && purgers_now() == 0; waited += 10) {
        CHECK(waited < DEADLINE_MS, "2 MiB in use, but no purger");
        sleep_ms(10);
    }
    free(block);
    end_parked(other);
}
/* 64 KiB at a time: a few in a second are nothing, many go round without the lock that all threads share, which takes a purger. */
static void much_traffic_below_a_mib(void) {
    pthread_t other = start_parked();
    for (int turn = 0; turn < 600; turn++) {
        free(opaque(malloc(64 * KIB)));
        if (turn % 100 == 0) sleep_ms(60);
    }
    CHECK(purgers_now() == 0, "600 blocks of 64 KiB in 360 ms, but a purger");
    struct timespec begun, now;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    do {
        for (int turn = 0; turn < 1000; turn++) free(opaque(malloc(64 * KIB)));
        clock_gettime(CLOCK_MONOTONIC, &now);
        CHECK(now.tv_sec - begun.tv_sec < DEADLINE_MS / 1000, "64 KiB again and again, but no purger");
    } while (preloaded() && purgers_now() == 0);
    wait_until_it_leaves("64 KiB went round, and nothing since");
    end_parked(other);
}
static void none_if_off(void) {
    pthread_t other = start_parked();
    fill_and_free(5, 0);
    sleep_ms(100);
    CHECK(purgers_now() == 0, "purger:off, but there is one");
    end_parked(other);
}
/* Who does not sleep looks so often in a moment as should take seconds, and leaves; the next allocation starts another. */
static void sleeps_where_nanosleep_is_refused(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_nanosleep, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    install_filter(filter, COUNT_OF(filter));
    pthread_t other = start_parked();
    fill_and_free(5, 0);
    poll(NULL, 0, 500);
    CHECK(purgers_now() == 1 || !preloaded(), "after half a second there are %d purgers", purgers_now());
    end_parked(other);
}
/* A limit on threads that is reached for a moment; root has none. */
static void comes_after_a_refusal(void) {
    if (getuid() == 0 && setuid(65534) != 0) {
        say_skipped("root cannot become another user");
        return;
    }
    pthread_t other = start_parked();
    wait_until_it_leaves("nothing to give back");
    struct rlimit usual, low;
    CHECK(getrlimit(RLIMIT_NPROC, &usual) == 0, "no limit");
    low = (struct rlimit){1, usual.rlim_max};
    CHECK(setrlimit(RLIMIT_NPROC, &low) == 0, "no lower limit");
    fill_and_free(5, 0);
    CHECK(purgers_now() == 0, "a thread started beyond the limit");
    CHECK(setrlimit(RLIMIT_NPROC, &usual) == 0, "no limit as it was");
    for (int waited = 0; purgers_now() == 0; waited += 50) {
        CHECK(waited < DEADLINE_MS, "the limit is gone, but no purger comes");
        sleep_ms(50);
        char *blocks[64];
        for (int i = 0; i < 64; i++) memset(blocks[i] = malloc(64 * KIB), 1, 64 * KIB);
        for (int i = 0; i < 64; i++) free(blocks[i]);
    }
    end_parked(other);
}
static void forked(void) {
    pthread_t other = start_parked();
    fill_and_free(5, 0);
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        CHECK(child >= 0, "no child");
        if (child == 0) {
            int all;
            CHECK(purgers(&all) == 0 && all == 1, "a forked child has %d threads", all);
            /* A child with threads of its own has one of its own. The forked copy of the parked thread is gone. */
            large_block();
            CHECK(purgers_now() <= 1, "%d purgers", purgers_now());
            _exit(0);
        }
        fill_and_free((unsigned)i, 0);
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0, "the child ended with %#x", status);
    }
    end_parked(other);
}
/* Only one thread of the parent ever allocated, so nothing but libc's flag speaks for threads, and that speaks of the parent's. */
static void forked_from_one(void) {
    pthread_t other = start_parked();
    pid_t child = fork();
    if (child == 0) {
        fill_and_free(5, 0);
        int all;
        CHECK(purgers(&all) == 0 && all == 1, "%d threads in a child that made none", all);
        _exit(0);
    }
    expect_success(child, "a child of one thread");
    end_parked(other);
}
static void *fill_in_turns(void *unused) {
    enum { BLOCKS_OF_TURN = 64, TURNS = 30 };
    for (int turn = 0; turn < TURNS; turn++) {
        char *block[BLOCKS_OF_TURN];
        for (size_t i = 0; i < BLOCKS_OF_TURN; i++) memset(block[i] = malloc(100000 + i * 5000), 1, 100000 + i * 5000);
        for (size_t i = 0; i < BLOCKS_OF_TURN; i++) free(block[i]);
    }
    return unused;
}
static long minor_faults(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}
static pid_t raw_clone(void) { return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); }
/* No handler tells the child of a process with one thread that it is one: with threads it holds its memory all the same. */
static void cloned(void) {
    free(allocate(NULL));
    pid_t child = raw_clone();
    if (child == 0) {
        pthread_t threads[2];
        for (size_t i = 0; i < COUNT_OF(threads); i++) pthread_create(&threads[i], NULL, fill_in_turns, NULL);
        for (size_t i = 0; i < COUNT_OF(threads); i++) pthread_join(threads[i], NULL);
        /* The pages of 64 blocks for each thread are 8,000; of all blocks 240,000. */
        CHECK(minor_faults() < 60000 || !preloaded(), "%ld faults", minor_faults());
        _exit(0);
    }
    expect_success(child, "a child of a raw clone");
}
/* A child of vfork that allocates before exec, as the JDK's does, has its parent's memory, but a thread that it makes ends with it. */
static void vforked(void) {
    pthread_t other = start_parked();
    wait_until_it_leaves("nothing to give back");
    pid_t child = vfork();
    if (child == 0) {
        int all;
        allocate(NULL);
        purgers(&all);
        _exit(all != 1);
    }
    expect_success(child, "a child of vfork that allocates and makes no thread");
    fill_and_free(6, 0);
    CHECK(purgers_now() == 1 || !preloaded(), "a child of vfork was here, and no purger comes any more");
    end_parked(other);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {
        {"small_blocks_after_bursts", small_blocks_after_bursts},
        {"resized_block", resized_block},   {"beside_a_busy_thread", beside_a_busy_thread},
        {"parked_threads", parked_threads}, {"large_block", large_block}, {"survivors", survivors},
        {"waits_for_long_turns", waits_for_long_turns},
        {"contents", contents},             {"leaves", leaves},           {"none_with_one_thread", none_with_one_thread},
        {"none_when_alone_again", none_when_alone_again},
        {"none_below_a_mib", none_below_a_mib}, {"holds_small_blocks_longer", holds_small_blocks_longer},
        {"much_traffic_below_a_mib", much_traffic_below_a_mib},
        {"none_if_off", none_if_off},       {"forked", forked},
        {"forked_from_one", forked_from_one},
        {"cloned", cloned},                 {"vforked", vforked},
        {"threads_end_when_it_has_left", threads_end_when_it_has_left},
        {"comes_after_a_refusal", comes_after_a_refusal},
        {"sleeps_where_nanosleep_is_refused", sleeps_where_nanosleep_is_refused},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        if (argc == 2 && strcmp(argv[1], cases[i].name) == 0) return cases[i].run(), 0;
    fail(__FILE__, __LINE__, "no such case");
}
