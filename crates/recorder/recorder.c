/*
 * The recorder of `faultless churn --malloc`: a preload library that counts every call of malloc and its family, and
 * describes some of them, in a file that the tool maps, too.
 *
 * Counted is every call, exactly, by function and by power of two of the size. Described, with its call chain, is one
 * of every `period` allocations of a size class in a thread: all of them until they come faster than SAMPLES_A_SECOND,
 * then fewer, at a place chosen at random in each run of `period` calls, so that every call has the same chance. A
 * described block is remembered until it is freed, by whichever thread: only one is remembered for whose free there is
 * room, so that no free is ever dropped and taken for a block that lives.
 *
 * It forwards to the next allocator, takes no lock, allocates nothing and waits for nobody: where there is no room, it
 * drops the description of an allocation and counts that. A child of fork begins a file of its own (the kernel wipes the pages that say
 * which file is ours). The layout is read by crates/records/src/malloc_event.rs; change both together.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
#define COLD __attribute__((noinline, cold))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* The oldest version of each symbol, so that an old glibc can load us. */
#ifdef __x86_64__
__asm__(".symver dlsym,dlsym@GLIBC_2.2.5");
__asm__(".symver pthread_key_create,pthread_key_create@GLIBC_2.2.5");
__asm__(".symver pthread_setspecific,pthread_setspecific@GLIBC_2.2.5");
#pragma weak dlsym
#pragma weak pthread_key_create
#pragma weak pthread_setspecific
#endif

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

enum {
    VERSION = 2,
    CLASSES = 64,
    RINGS = 1024,
    BARE_RINGS = 15 * 1024, /* for the threads beyond: counts, and no room for records */
    RING_BYTES = 1 << 20, /* of records; a power of two */
    STACK_BYTES = 4096,
    PAGE = 4096,
    TRACKED_BUCKETS = 1 << 15, /* of one cache line each */
    WAYS = 4,
    SPILL_PLACES = 1 << 17, /* a power of two */
    SPILL_STEP = 512,       /* places that get room at once */
    SAMPLES_A_SECOND = 2000, /* of one size class in one thread */
    ADAPT_AFTER = 64,        /* samples between looks at the clock */
    MOST_PERIOD = 1 << 24,
    BOOT_BYTES = 1 << 16,
};

#define MAGIC 0x31434552544c4146ull /* "FALTREC1" in memory */

enum operation { MALLOC, CALLOC, REALLOC, ALIGNED, OPERATIONS };
enum kind { KIND_ALLOCATED = 1, KIND_FREED = 2, KIND_THREAD = 3 };

struct counter {
    uint64_t calls, bytes;
};

/* The first page of the file. */
struct head {
    uint64_t magic;
    uint32_t version, ring_bytes;
    int64_t pid;
    uint64_t start_ns;
    _Atomic uint64_t rings;    /* places up to the last one made */
    _Atomic uint64_t untracked; /* described blocks that found no place to be remembered */
    _Atomic uint64_t unringed; /* threads without a ring */
    uint64_t fast_ps;          /* picoseconds that counting one call takes, measured at the start */
    uint64_t has_ended;        /* the process exited in the ordinary way */
    uint64_t namespace;        /* the inode of the PID namespace in which `pid` counts; 0: not known */
    _Atomic uint64_t spill_head;
    uint64_t is_forked;          /* a child of fork: it may free what its parent allocated */
    _Atomic uint64_t has_missed; /* a call was not counted */
    _Atomic uint64_t bare_rings;   /* places up to the last one made */
    _Atomic uint64_t bare_threads; /* threads that got one of these */
    uint64_t pad;
    _Atomic uint64_t spill_tail; /* the tool's */
};

/*
 * A bare ring has no `records`: the calls of its thread are counted and not described.
 *
 * Synchronization: written by the thread that owns the ring, read by the tool; `tail` the other way round.
 */
struct ring {
    _Atomic uint64_t head;
    uint64_t pad0[7];
    _Atomic uint64_t tail;
    uint64_t pad1[7];
    uint64_t tid;
    uint64_t dropped, frees, failed, described, describing_ns;
    uint64_t random;
    uint64_t reallocated; /* blocks that realloc took and did not leave as they were */
    struct stratum {
        uint32_t countdown, rest, period, samples;
        uint64_t since_ns;
    } strata[CLASSES];
    uint64_t freed_by_realloc; /* blocks that realloc freed: no bytes were asked for */
    uint8_t pad3[PAGE - 192 - CLASSES * 24 - 8];
    struct counter counters[OPERATIONS][CLASSES];
    uint8_t records[RING_BYTES];
};
_Static_assert(offsetof(struct ring, freed_by_realloc) == 1728, "the tool knows where it is");
_Static_assert(offsetof(struct ring, counters) == PAGE, "the tool knows where the counters are");
_Static_assert(offsetof(struct ring, records) == 2 * PAGE, "the tool knows where the records are");
_Static_assert(sizeof(struct ring) % PAGE == 0, "rings are whole pages");

/*
 * A free that found no room in its thread's ring, or whose thread has none. The places of the process lie behind the
 * rings and before the bare ones; each remembered block has one reserved.
 */
struct spilled {
    uint64_t time_ns, id, tid;
    _Atomic uint64_t written; /* the number of the place, from 1 on, << 1 | whether realloc freed it */
};
_Static_assert(SPILL_STEP * sizeof(struct spilled) % PAGE == 0, "steps are whole pages");
_Static_assert(offsetof(struct head, spill_tail) == 128, "the tool knows where it writes");

struct tracked {
    _Atomic uintptr_t address; /* 0: free, 1: being written */
    uint64_t id;
};

enum ring_state { NEVER_MADE, IN_USE, FREE };

/* Wiped in a child of fork: all zero means that there is no file yet. */
struct own {
    _Atomic uint32_t state; /* 0 nothing, 1 being made, 2 made, 3 cannot be */
    _Atomic uint32_t next_id;
    struct head *head;
    struct ring *rings;
    struct tracked (*tracked)[WAYS];
    struct spilled *spill;
    uint8_t *bare; /* the bare rings; behind all others in the file and in memory */
    _Atomic uint64_t reserved; /* places of `spill` kept for remembered blocks */
    _Atomic uint64_t roomy;    /* places of `spill` that have room in the file */
    /* Not in the file: a ring that was never made is a hole there, which a full disk ends us for reading. */
    _Atomic uint8_t ring_states[RINGS + BARE_RINGS];
};

static struct own *own;
static struct own no_memory = {.state = 3};
static __thread struct ring *my_ring __attribute__((tls_model("initial-exec")));
static __thread uint32_t my_generation __attribute__((tls_model("initial-exec")));
static __thread uint32_t my_refusal __attribute__((tls_model("initial-exec"))); /* the generation without a ring for us */
static __thread uint32_t my_bareness __attribute__((tls_model("initial-exec"))); /* the generation that counts us as bare */
static __thread uint8_t busy __attribute__((tls_model("initial-exec")));
/*
 * Our destructor has run: it may be the last. libc frees buffers of a thread after all of them, and nobody would release a ring that
 * is taken there: such a thread has one for the time of a call.
 */
static __thread uint8_t is_leaving __attribute__((tls_model("initial-exec")));
static pthread_key_t key;
static int has_key;
static _Atomic uint32_t generation;

static void *(*next_malloc)(size_t);
static void *(*next_calloc)(size_t, size_t);
static void *(*next_realloc)(void *, size_t);
static void (*next_free)(void *);
static int (*next_posix_memalign)(void **, size_t, size_t);
static void *(*next_aligned_alloc)(size_t, size_t);
static void *(*next_memalign)(size_t, size_t);
static void *(*next_valloc)(size_t);
static void *(*next_pvalloc)(size_t);
static void *(*next_mallocx)(size_t, int);
static void *(*next_rallocx)(void *, size_t, int);
static void (*next_dallocx)(void *, int);
static void (*next_sdallocx)(void *, size_t, int);

/* What dlsym itself asks for while we look for the next allocator. */
static _Alignas(16) uint8_t boot[BOOT_BYTES];
static _Atomic size_t boot_used;
static _Atomic int is_resolving;

static void *boot_allocate(size_t bytes)
{
    size_t room = (bytes + 31) & ~(size_t)15;
    size_t at = atomic_fetch_add_explicit(&boot_used, room, memory_order_relaxed);
    if (room < bytes || at + room > BOOT_BYTES) {
        errno = ENOMEM;
        return NULL;
    }
    *(size_t *)(boot + at) = bytes;
    return boot + at + 16;
}

static int is_boot(const void *block)
{
    return (const uint8_t *)block >= boot && (const uint8_t *)block < boot + BOOT_BYTES;
}

/* False only inside of itself: the caller then takes from `boot`. */
static COLD int resolve(void)
{
    if (atomic_exchange(&is_resolving, 1))
        return next_malloc != NULL;
    next_calloc = dlsym(RTLD_NEXT, "calloc");
    next_realloc = dlsym(RTLD_NEXT, "realloc");
    next_free = dlsym(RTLD_NEXT, "free");
    next_posix_memalign = dlsym(RTLD_NEXT, "posix_memalign");
    next_aligned_alloc = dlsym(RTLD_NEXT, "aligned_alloc");
    next_memalign = dlsym(RTLD_NEXT, "memalign");
    next_valloc = dlsym(RTLD_NEXT, "valloc");
    next_pvalloc = dlsym(RTLD_NEXT, "pvalloc");
    next_mallocx = dlsym(RTLD_NEXT, "mallocx");
    next_rallocx = dlsym(RTLD_NEXT, "rallocx");
    next_dallocx = dlsym(RTLD_NEXT, "dallocx");
    next_sdallocx = dlsym(RTLD_NEXT, "sdallocx");
    next_malloc = dlsym(RTLD_NEXT, "malloc");
    return next_malloc != NULL;
}

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* Of this thread, so that waiting for a processor is no cost of ours. */
static uint64_t processor_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static char *decimal(char *end, uint64_t number)
{
    do {
        *--end = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    return end;
}

static const uint64_t size_signal = 1ull << (SIGXFSZ - 1);

/* A file beyond the limit of its size (ulimit -f) ends a program by this signal; our calls shall only fail. */
static uint64_t hold_size_signal(void)
{
    uint64_t before = 0;
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, &size_signal, &before, sizeof before);
    return before;
}

static void release_size_signal(uint64_t before)
{
    struct timespec no_time = {0, 0};
    if (!(before & size_signal))
        syscall(SYS_rt_sigtimedwait, &size_signal, NULL, &no_time, sizeof size_signal);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof before);
}

static char rings_path[PAGE], maps_path[PAGE], new_maps_path[PAGE];

/*
 * Copies what the kernel says is mapped: the tool finds the names of call chains by it when we are gone. It gets its name
 * when it is whole: the tool may look at any time.
 */
static void save_maps(void)
{
    char buffer[PAGE];
    int flags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC;
    int from = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC);
    int to = (int)syscall(SYS_openat, AT_FDCWD, new_maps_path, flags, 0600);
    long length = -1;
    while (from >= 0 && to >= 0 && (length = syscall(SYS_read, from, buffer, sizeof buffer)) > 0)
        if (syscall(SYS_write, to, buffer, length) != length)
            break;
    if (from >= 0)
        syscall(SYS_close, from);
    if (to >= 0)
        syscall(SYS_close, to);
    if (length == 0)
        syscall(SYS_renameat, AT_FDCWD, new_maps_path, AT_FDCWD, maps_path);
}

/* DIRECTORY/PID-TIME.rings, .maps and, until that is whole, .new */
static int make_paths(void)
{
    const char *directory = getenv("FAULTLESS_RECORDER");
    size_t length = directory ? strlen(directory) : 0;
    if (length == 0 || length + 64 > PAGE)
        return 0;
    char *path = rings_path;
    memcpy(path, directory, length);
    path[length++] = '/';
    char digits[24];
    char *end = digits + sizeof digits;
    for (int part = 0; part < 2; part++) {
        char *start = decimal(end, part == 0 ? (uint64_t)syscall(SYS_getpid) : now_ns());
        memcpy(path + length, start, (size_t)(end - start));
        length += (size_t)(end - start);
        path[length++] = part == 0 ? '-' : '.';
    }
    memcpy(maps_path, rings_path, length);
    memcpy(new_maps_path, rings_path, length);
    strcpy(rings_path + length, "rings");
    strcpy(maps_path + length, "maps");
    strcpy(new_maps_path + length, "new");
    return 1;
}

/* What counting one call takes, in picoseconds: the part of the cost that cannot be seen in the records. */
static uint64_t measure_fast(struct ring *ring, struct tracked (*tracked)[WAYS])
{
    enum { ROUNDS = 512, TIMES = 5 };
    uint64_t best = UINT64_MAX;
    for (int time = 0; time < TIMES; time++) {
        uint64_t start = now_ns();
        for (int round = 0; round < ROUNDS; round++) {
            /* Half of the calls count an allocation, the other half look a block up. */
            struct counter *counter = &ring->counters[MALLOC][(unsigned)round % 8];
            *(volatile uint64_t *)&counter->calls += 1;
            *(volatile uint64_t *)&counter->bytes += 64;
            *(volatile uint32_t *)&ring->strata[(unsigned)round % 8].countdown -= 1;
            *(volatile uint64_t *)&ring->frees += 1;
            for (int way = 0; way < WAYS; way++)
                (void)atomic_load_explicit(&tracked[round * 61 % 1024][way].address, memory_order_acquire);
        }
        uint64_t took = now_ns() - start;
        best = took < best ? took : best;
    }
    memset(ring->counters, 0, sizeof ring->counters);
    memset(ring->strata, 0, sizeof ring->strata);
    ring->frees = 0;
    return best * 1000 / ROUNDS / 2;
}

/* A full disk is an answer here, and no signal when the room is used. */
static int make_room(int file, uint64_t at, uint64_t bytes)
{
    long answer;
    do
        answer = syscall(SYS_fallocate, file, 0, (off_t)at, (off_t)bytes);
    while (answer != 0 && errno == EINTR);
    return answer == 0;
}

/* Process numbers of another namespace than the tool's are others to it. */
static uint64_t own_namespace(void)
{
    char name[32], *at = name;
    long length = syscall(SYS_readlinkat, AT_FDCWD, "/proc/self/ns/pid", name, sizeof name - 1);
    uint64_t number = 0;
    /* "pid:[4026531836]" */
    for (name[length < 0 ? 0 : length] = 0; *at; at++)
        number = *at >= '0' && *at <= '9' ? number * 10 + (uint64_t)(*at - '0') : number;
    return number;
}

static const uint64_t spill_at = PAGE + (uint64_t)RINGS * sizeof(struct ring);
static const uint64_t bare_at =
    PAGE + (uint64_t)RINGS * sizeof(struct ring) + SPILL_PLACES * sizeof(struct spilled);
static const uint64_t bare_bytes = offsetof(struct ring, records);

static void set_up(struct own *mine)
{
    mine->state = 3;
    if (!make_paths())
        return;
    size_t bytes = bare_at + BARE_RINGS * bare_bytes;
    int file = (int)syscall(SYS_openat, AT_FDCWD, rings_path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0)
        return;
    uint8_t *memory = MAP_FAILED, *tracked = MAP_FAILED;
    /* Room is made for one ring now and for the others when they are needed. */
    if (syscall(SYS_ftruncate, file, bytes) == 0 && make_room(file, 0, PAGE + sizeof(struct ring)))
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    syscall(SYS_close, file);
    if (memory == MAP_FAILED)
        return;
    tracked = mmap(NULL, TRACKED_BUCKETS * sizeof(*mine->tracked), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (tracked == MAP_FAILED || madvise(memory, bytes, MADV_DONTFORK) != 0 ||
        madvise(tracked, TRACKED_BUCKETS * sizeof(*mine->tracked), MADV_WIPEONFORK) != 0) {
        munmap(memory, bytes);
        return;
    }
    mine->rings = (struct ring *)(memory + PAGE);
    mine->tracked = (void *)tracked;
    mine->spill = (struct spilled *)(memory + spill_at);
    mine->bare = memory + bare_at;
    mine->head = (struct head *)memory;
    mine->head->version = VERSION;
    mine->head->ring_bytes = RING_BYTES;
    mine->head->pid = syscall(SYS_getpid);
    mine->head->namespace = own_namespace();
    mine->head->start_ns = now_ns();
    mine->head->is_forked = generation > 1;
    mine->head->fast_ps = measure_fast(&mine->rings[0], mine->tracked);
    mine->head->rings = 1;
    mine->ring_states[0] = FREE;
    save_maps();
    atomic_thread_fence(memory_order_release);
    *(volatile uint64_t *)&mine->head->magic = MAGIC;
    mine->state = 2;
}

static int is_bare(const struct ring *ring)
{
    return (const uint8_t *)ring >= own->bare;
}

/* Of all rings: the bare ones come last. */
static struct ring *ring_at(struct own *mine, uint64_t place)
{
    return place < RINGS ? &mine->rings[place] : (struct ring *)(mine->bare + (place - RINGS) * bare_bytes);
}

static uint64_t place_of(struct own *mine, const struct ring *ring)
{
    if (is_bare(ring))
        return RINGS + (uint64_t)((const uint8_t *)ring - mine->bare) / bare_bytes;
    return (uint64_t)(ring - mine->rings);
}

static COLD void give_back(struct ring *ring)
{
    atomic_store_explicit(&own->ring_states[place_of(own, ring)], FREE, memory_order_release);
}

static void release_ring(void *unused)
{
    (void)unused;
    if (my_ring && own && own->state == 2 && my_generation == generation)
        give_back(my_ring);
    my_ring = NULL;
    is_leaving = 1;
}

/* Room for a record of so many bytes, or 0. */
static int has_room(struct ring *ring, uint64_t bytes)
{
    if (is_bare(ring))
        return 0;
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
    uint64_t used = atomic_load_explicit(&ring->head, memory_order_relaxed) - tail;
    return used <= RING_BYTES && RING_BYTES - used >= bytes;
}

static void put(struct ring *ring, uint64_t at, const void *bytes, uint64_t length)
{
    uint64_t place = at & (RING_BYTES - 1);
    uint64_t first = length < RING_BYTES - place ? length : RING_BYTES - place;
    memcpy(ring->records + place, bytes, first);
    memcpy(ring->records, (const uint8_t *)bytes + first, length - first);
}

/* Words, then bytes whose number is a multiple of 8; false without room. */
static int write_record(struct ring *ring, enum kind kind, const uint64_t *words, unsigned number, const void *more,
                        uint64_t more_bytes)
{
    uint64_t length = 8 + number * 8 + more_bytes;
    if (!has_room(ring, length))
        return 0;
    uint64_t at = atomic_load_explicit(&ring->head, memory_order_relaxed);
    uint64_t header = (uint64_t)kind | length << 32;
    put(ring, at, &header, 8);
    put(ring, at + 8, words, number * 8);
    put(ring, at + 8 + number * 8, more, more_bytes);
    atomic_store_explicit(&ring->head, at + length, memory_order_release);
    return 1;
}

static int open_rings(void)
{
    return (int)syscall(SYS_openat, AT_FDCWD, rings_path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
}

/* The first ring of that state among these, which is ours alone then; `to` where there is none. */
static uint64_t claim(struct own *mine, uint64_t from, uint64_t to, uint8_t state)
{
    uint64_t place = from;
    for (; place < to; place++) {
        uint8_t found = state;
        if (atomic_load_explicit(&mine->ring_states[place], memory_order_relaxed) == state &&
            atomic_compare_exchange_strong(&mine->ring_states[place], &found, IN_USE))
            break;
    }
    return place;
}

/* `made`: how many of these were made. */
static struct ring *take_one_of(struct own *mine, uint64_t from, uint64_t to, _Atomic uint64_t *made)
{
    uint64_t place = claim(mine, from, to, FREE);
    if (place < to)
        return ring_at(mine, place);
    place = claim(mine, from, to, NEVER_MADE);
    if (place == to)
        return NULL;
    struct ring *ring = ring_at(mine, place);
    int file = open_rings();
    int has_room = file >= 0 && make_room(file, (uint64_t)((uint8_t *)ring - (uint8_t *)mine->head),
                                          is_bare(ring) ? bare_bytes : sizeof(struct ring));
    if (file >= 0)
        syscall(SYS_close, file);
    if (!has_room) {
        mine->ring_states[place] = NEVER_MADE;
        return NULL;
    }
    /* The tool may look at rings before this one that are being made: to a reader they are empty. */
    uint64_t before = atomic_load(made), now = place - from + 1;
    while (before < now && !atomic_compare_exchange_weak(made, &before, now)) {
    }
    return ring;
}

static struct ring *take_ring(struct own *mine)
{
    struct ring *ring = take_one_of(mine, 0, RINGS, &mine->head->rings);
    if (ring)
        return ring;
    ring = take_one_of(mine, RINGS, RINGS + BARE_RINGS, &mine->head->bare_rings);
    if (ring && my_bareness != generation) {
        my_bareness = generation;
        atomic_fetch_add(&mine->head->bare_threads, 1);
    }
    return ring;
}

/* The ring is this thread's from here on; of one that is leaving, until the call has been counted. */
static void begin_ring(struct ring *ring, uint32_t tid)
{
    uint64_t words[4] = {now_ns(), tid, 0, 0};
    ring->tid = tid;
    ring->random = words[0] * 0x9e3779b97f4a7c15u + tid;
    for (int class = 0; class < CLASSES; class++)
        ring->strata[class] = (struct stratum){!is_bare(ring), 0, 1, 0, words[0]};
    if (is_leaving)
        return;
    prctl(PR_GET_NAME, &words[2]);
    ring->dropped += !is_bare(ring) && !write_record(ring, KIND_THREAD, words, 4, NULL, 0);
    my_generation = generation;
    my_ring = ring;
    if (has_key)
        pthread_setspecific(key, ring);
}

static COLD struct ring *attach(void)
{
    /* A thread that found no room stays unseen: to ask again at each call would cost more than malloc. */
    if (busy || (my_refusal != 0 && my_refusal == generation && own->state == 2)) {
        if (own && own->state == 2 && !own->head->has_missed)
            own->head->has_missed = 1;
        return NULL;
    }
    busy = 1;
    int error = errno;
    struct own *mine = own;
    if (mine == NULL) {
        /* Only the first call of the process is here: threads come later. */
        mine = mmap(NULL, sizeof *mine, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (mine == MAP_FAILED || madvise(mine, sizeof *mine, MADV_WIPEONFORK) != 0)
            mine = &no_memory;
        own = mine;
    }
    uint32_t nothing = 0;
    if (atomic_compare_exchange_strong(&mine->state, &nothing, 1)) {
        atomic_fetch_add(&generation, 1);
        uint64_t signals = hold_size_signal();
        set_up(mine);
        release_size_signal(signals);
        if (!has_key && pthread_key_create)
            has_key = pthread_key_create(&key, release_ring) == 0;
    }
    struct ring *ring = NULL;
    /* While another thread sets up, this one is not counted; there is only one thread after fork and at the start. */
    if (mine->state == 2) {
        uint32_t tid = (uint32_t)syscall(SYS_gettid);
        ring = take_ring(mine);
        if (ring == NULL) {
            my_refusal = generation;
            atomic_fetch_add(&mine->head->unringed, 1);
            mine->head->has_missed = 1;
        } else {
            begin_ring(ring, tid);
        }
    }
    errno = error;
    busy = 0;
    return ring;
}

/* The ring that this thread has; it may still have to ask for one. */
static inline struct ring *own_ring(void)
{
    struct own *mine = own;
    struct ring *ring = my_ring;
    return likely(mine != NULL && mine->state == 2 && ring != NULL && my_generation == generation) ? ring : NULL;
}

/* For one call; to be followed by `counted`. */
static struct ring *asked_for_ring(void)
{
    struct own *mine = own;
    return mine != NULL && mine->state > 2 ? NULL : attach();
}

static void counted(struct ring *ring)
{
    if (ring != my_ring && ring != NULL)
        give_back(ring);
}

static uint64_t hash(const void *block)
{
    return ((uintptr_t)block >> 4) * 0x9e3779b97f4a7c15u >> (64 - 15);
}

/* Room in the file for so many places of `spill`. Two threads may make the same room: that is harmless. */
static int make_spill_room(struct own *mine, uint64_t places)
{
    uint64_t roomy = atomic_load(&mine->roomy), wanted = (places + SPILL_STEP - 1) / SPILL_STEP * SPILL_STEP;
    int file = open_rings();
    if (file < 0)
        return 0;
    int has_room = roomy >= wanted || make_room(file, spill_at + roomy * sizeof(struct spilled),
                                                (wanted - roomy) * sizeof(struct spilled));
    syscall(SYS_close, file);
    while (has_room && roomy < wanted && !atomic_compare_exchange_weak(&mine->roomy, &roomy, wanted)) {
    }
    return has_room;
}

/*
 * Keeps a place for the free of a block. What is reserved and what the tool has not read are never more than all places:
 * who spills moves the head on before it gives its reservation back, and here the reservations are read first.
 */
static int reserve_spill(struct own *mine)
{
    uint64_t reserved = atomic_fetch_add(&mine->reserved, 1) + 1;
    uint64_t head = atomic_load(&mine->head->spill_head), tail = atomic_load(&mine->head->spill_tail);
    uint64_t reach = head + reserved < SPILL_PLACES ? head + reserved : SPILL_PLACES;
    if (head - tail + reserved <= SPILL_PLACES &&
        (reach <= atomic_load(&mine->roomy) || make_spill_room(mine, reach)))
        return 1;
    atomic_fetch_sub(&mine->reserved, 1);
    return 0;
}

/* The place was reserved when the block was described. */
static void spill(struct own *mine, const uint64_t words[4])
{
    uint64_t place = atomic_fetch_add(&mine->head->spill_head, 1);
    struct spilled *to = &mine->spill[place & (SPILL_PLACES - 1)];
    to->time_ns = words[0];
    to->id = words[1];
    to->tid = words[2];
    atomic_store_explicit(&to->written, (place + 1) << 1 | words[3], memory_order_release);
}

/* False where its bucket is full. */
static int remember(const void *block, uint64_t id)
{
    struct tracked *bucket = own->tracked[hash(block)];
    for (int way = 0; way < WAYS; way++) {
        uintptr_t nothing = 0;
        if (bucket[way].address == 0 && atomic_compare_exchange_strong(&bucket[way].address, &nothing, 1)) {
            bucket[way].id = id;
            atomic_store_explicit(&bucket[way].address, (uintptr_t)block, memory_order_release);
            return 1;
        }
    }
    return 0;
}

static int track(const void *block, uint64_t id)
{
    if (reserve_spill(own)) {
        if (remember(block, id))
            return 1;
        atomic_fetch_sub(&own->reserved, 1);
    }
    atomic_fetch_add_explicit(&own->head->untracked, 1, memory_order_relaxed);
    return 0;
}

/* Where we are: the tool unwinds from here through us to the caller. */
struct place {
    uint64_t ip, sp, fp, lr;
};

static inline __attribute__((always_inline)) struct place here(void)
{
    struct place place = {0, 0, 0, 0};
#if defined(__x86_64__)
    __asm__ volatile("lea (%%rip), %0\n\tmov %%rsp, %1\n\tmov %%rbp, %2"
                     : "=r"(place.ip), "=r"(place.sp), "=r"(place.fp));
#elif defined(__aarch64__)
    __asm__ volatile("adr %0, .\n\tmov %1, sp\n\tmov %2, x29\n\tmov %3, x30"
                     : "=r"(place.ip), "=r"(place.sp), "=r"(place.fp), "=r"(place.lr));
#endif
    return place;
}

/* Copies the stack by way of the kernel, which stops where nothing is mapped. */
static uint64_t copy_stack(uint8_t *to, uint64_t sp, uint64_t bytes)
{
    struct iovec local = {to, bytes}, remote[2 + STACK_BYTES / PAGE];
    unsigned pieces = 0;
    for (uint64_t at = sp, end = sp + bytes; at < end; pieces++) {
        uint64_t next = (at | (PAGE - 1)) + 1;
        next = next < end ? next : end;
        remote[pieces] = (struct iovec){(void *)at, next - at};
        at = next;
    }
    long copied = syscall(SYS_process_vm_readv, syscall(SYS_getpid), &local, 1, remote, pieces, 0);
    if (copied <= 0) {
        /* Forbidden here: the page that we stand on is there. */
        copied = (long)remote[0].iov_len;
        memcpy(to, (void *)sp, (size_t)copied);
    }
    return (uint64_t)copied & ~7ull;
}

static uint32_t below(struct ring *ring, uint32_t limit)
{
    ring->random ^= ring->random << 13;
    ring->random ^= ring->random >> 7;
    ring->random ^= ring->random << 17;
    return (uint32_t)((ring->random >> 32) * limit >> 32);
}

/* The next call to be described: one at random of the next `period`, after those that are left of this run. */
static void choose_next(struct ring *ring, struct stratum *stratum, uint64_t now)
{
    uint32_t old = stratum->rest;
    int is_full = !has_room(ring, RING_BYTES / 2);
    if (++stratum->samples >= ADAPT_AFTER || (is_full && stratum->samples >= ADAPT_AFTER / 8)) {
        uint64_t took = now - stratum->since_ns + 1, wanted = (uint64_t)stratum->samples * 1000000000u / SAMPLES_A_SECOND;
        uint64_t period = stratum->period;
        if (took < wanted)
            period *= wanted / took < 8 ? wanted / took + 1 : 8;
        else if (took > wanted * 4)
            period /= took / wanted / 2;
        stratum->period = (uint32_t)(period < 1 ? 1 : period > MOST_PERIOD ? MOST_PERIOD : period);
        stratum->samples = 0;
        stratum->since_ns = now;
    }
    uint32_t place = stratum->period > 1 ? below(ring, stratum->period) : 0;
    stratum->countdown = old + place + 1;
    stratum->rest = stratum->period - 1 - place;
}

/* `place` is in the frame of our caller, so that this one's buffer is no part of the stack that is copied. */
static COLD void describe_at(struct place place, struct ring *ring, enum operation operation, size_t size, void *block,
                             unsigned class)
{
    if (busy) {
        ring->strata[class].countdown = 1;
        return;
    }
    busy = 1;
    int error = errno;
    uint64_t began = processor_ns(), now = now_ns();
    struct stratum *stratum = &ring->strata[class];
    uint64_t id = (uint64_t)atomic_fetch_add_explicit(&own->next_id, 1, memory_order_relaxed) + 1;
    uint64_t is_tracked = has_room(ring, 128 + STACK_BYTES) && track(block, id);
    _Alignas(8) uint8_t stack[STACK_BYTES];
    uint64_t words[9] = {now,
                         id,
                         size,
                         stratum->period | (uint64_t)operation << 32 | is_tracked << 40,
                         ring->tid,
                         place.ip,
                         place.sp,
                         place.fp,
                         place.lr};
    /* The fuller the ring, the less of the stack: better a chain that is cut than none. */
    uint64_t part = has_room(ring, RING_BYTES / 4 * 3) ? 1 : has_room(ring, RING_BYTES / 2) ? 2 : 4;
    uint64_t length = copy_stack(stack, place.sp, STACK_BYTES / part);
    ring->dropped += !write_record(ring, KIND_ALLOCATED, words, 9, stack, length);
    choose_next(ring, stratum, now);
    ring->described++;
    ring->describing_ns += processor_ns() - began;
    errno = error;
    busy = 0;
}

static COLD void describe(struct ring *ring, enum operation operation, size_t size, void *block, unsigned class)
{
    describe_at(here(), ring, operation, size, block, class);
    /* No jump to it: our frame must stand while it looks. */
    __asm__ volatile("" ::: "memory");
}

static inline __attribute__((always_inline)) void count_allocated(struct ring *ring, enum operation operation, size_t size,
                                                                  void *block)
{
    if (unlikely(block == NULL)) {
        ring->failed += size > 0;
        return;
    }
    unsigned class = size < 2 ? 0 : 63 - (unsigned)__builtin_clzll(size);
    struct counter *counter = &ring->counters[operation][class];
    counter->calls++;
    counter->bytes += size;
    if (unlikely(--ring->strata[class].countdown == 0))
        describe(ring, operation, size, block, class);
}

static COLD void allocated_without_ring(enum operation operation, size_t size, void *block)
{
    struct ring *ring = asked_for_ring();
    if (ring)
        count_allocated(ring, operation, size, block);
    counted(ring);
}

static inline __attribute__((always_inline)) void allocated(enum operation operation, size_t size, void *block)
{
    struct ring *ring = own_ring();
    if (likely(ring != NULL))
        count_allocated(ring, operation, size, block);
    else
        allocated_without_ring(operation, size, block);
}

/* Without a ring where the thread found no room for one. */
static COLD void describe_free(struct ring *ring, uint64_t id, uint64_t how)
{
    struct own *mine = own;
    uint64_t words[4] = {now_ns(), id, ring ? ring->tid : (uint64_t)(uint32_t)syscall(SYS_gettid), how};
    if (ring == NULL || !write_record(ring, KIND_FREED, words, 4, NULL, 0))
        spill(mine, words);
    atomic_fetch_sub(&mine->reserved, 1);
}

/* The number of a block that was remembered, which it is no more; else 0. */
static inline __attribute__((always_inline)) uint64_t forget(const void *block)
{
    struct tracked *bucket = own->tracked[hash(block)];
    for (int way = 0; way < WAYS; way++)
        if (unlikely(atomic_load_explicit(&bucket[way].address, memory_order_acquire) == (uintptr_t)block)) {
            uint64_t id = bucket[way].id;
            atomic_store_explicit(&bucket[way].address, 0, memory_order_release);
            return id;
        }
    return 0;
}

/* The same by a thread that may have no ring: it may free what others allocated. */
static inline uint64_t forget_anyway(const void *block)
{
    struct own *mine = own;
    return likely(mine != NULL && mine->state == 2) ? forget(block) : 0;
}

static inline __attribute__((always_inline)) void count_freeing(struct ring *ring, const void *block)
{
    uint64_t id = forget(block);
    ring->frees++;
    if (unlikely(id))
        describe_free(ring, id, 0);
}

static COLD void freeing_without_ring(const void *block)
{
    struct ring *ring = asked_for_ring();
    uint64_t id;
    if (ring)
        count_freeing(ring, block);
    else if ((id = forget_anyway(block)) != 0)
        describe_free(NULL, id, 0);
    counted(ring);
}

/* Before the block goes back: afterwards another thread may get it. */
static inline void freeing(const void *block)
{
    struct ring *ring = own_ring();
    if (likely(ring != NULL))
        count_freeing(ring, block);
    else
        freeing_without_ring(block);
}

API void *malloc(size_t size)
{
    if (unlikely(next_malloc == NULL) && !resolve())
        return boot_allocate(size);
    void *block = next_malloc(size);
    allocated(MALLOC, size, block);
    return block;
}

/* Bytes of so many; more than there are where no number is large enough, which every allocator refuses. */
static inline size_t product(size_t number, size_t size)
{
    size_t bytes;
    return unlikely(__builtin_mul_overflow(number, size, &bytes)) ? SIZE_MAX : bytes;
}

API void *calloc(size_t number, size_t size)
{
    size_t bytes = product(number, size);
    if (unlikely(next_malloc == NULL) && !resolve())
        return boot_allocate(bytes); /* zero: nothing there is used twice */
    void *block = next_calloc(number, size);
    allocated(CALLOC, bytes, block);
    return block;
}

API void free(void *block)
{
    if (block == NULL || unlikely(is_boot(block)))
        return;
    if (unlikely(next_malloc == NULL) && !resolve())
        return;
    freeing(block);
    next_free(block);
}

/*
 * C23. To the next allocator they are frees: glibc's lead to whoever has the name `free`, which is us, so that one would be counted twice
 * if it were called by this name; others' do not.
 */
API void free_sized(void *block, size_t size)
{
    (void)size;
    free(block);
}

API void free_aligned_sized(void *block, size_t alignment, size_t size)
{
    (void)alignment;
    free_sized(block, size);
}

/* Before a block may move; what it was remembered by, for `reallocated`. */
static inline uint64_t reallocating(const void *block)
{
    return block == NULL ? 0 : forget_anyway(block);
}

/* Afterwards: a refusal leaves the block where it was. Of no bytes it is a free. */
static inline void reallocated(const void *block, uint64_t id, size_t size, const void *moved)
{
    if (block == NULL || (unlikely(moved == NULL && size > 0) && (id == 0 || remember(block, id))))
        return;
    struct ring *ring = own_ring();
    if (ring == NULL)
        ring = asked_for_ring();
    if (ring && moved)
        ring->reallocated++;
    else if (ring && size == 0)
        ring->freed_by_realloc++;
    if (unlikely(id))
        describe_free(ring, id, 1);
    counted(ring);
}

static void *reallocate(void *block, size_t size)
{
    if (unlikely(is_boot(block))) {
        void *moved = malloc(size);
        size_t old = *(size_t *)((uint8_t *)block - 16);
        if (moved)
            memcpy(moved, block, old < size ? old : size);
        return moved;
    }
    uint64_t id = reallocating(block);
    void *moved = next_realloc(block, size);
    reallocated(block, id, size, moved);
    allocated(REALLOC, size, moved);
    return moved;
}

API void *realloc(void *block, size_t size)
{
    if (unlikely(next_malloc == NULL) && !resolve() && !is_boot(block))
        return boot_allocate(size);
    return reallocate(block, size);
}

API void *reallocarray(void *block, size_t number, size_t size)
{
    return realloc(block, product(number, size));
}

API int posix_memalign(void **result, size_t alignment, size_t size)
{
    if (unlikely(next_malloc == NULL) && !resolve())
        return ENOMEM;
    int answer = next_posix_memalign(result, alignment, size);
    allocated(ALIGNED, size, answer == 0 ? *result : NULL);
    return answer;
}

API void *aligned_alloc(size_t alignment, size_t size)
{
    if (unlikely(next_malloc == NULL) && !resolve())
        return NULL;
    void *block = next_aligned_alloc(alignment, size);
    allocated(ALIGNED, size, block);
    return block;
}

API void *memalign(size_t alignment, size_t size)
{
    if (unlikely(next_malloc == NULL) && !resolve())
        return NULL;
    void *block = next_memalign(alignment, size);
    allocated(ALIGNED, size, block);
    return block;
}

API void *valloc(size_t size)
{
    if (unlikely(next_malloc == NULL) && !resolve())
        return NULL;
    void *block = next_valloc(size);
    allocated(ALIGNED, size, block);
    return block;
}

API void *pvalloc(size_t size)
{
    if (unlikely(next_malloc == NULL) && !resolve())
        return NULL;
    void *block = next_pvalloc(size);
    allocated(ALIGNED, size, block);
    return block;
}

/*
 * jemalloc's own functions, by which BIND and Redis 8 allocate, too. Counted as what they do. A program may ask whether they are there and
 * find ours where there is no jemalloc: there is no memory then.
 */
API void *mallocx(size_t size, int flags)
{
    enum { LG_ALIGN = 63 };
    if ((unlikely(next_malloc == NULL) && !resolve()) || next_mallocx == NULL)
        return NULL;
    void *block = next_mallocx(size, flags);
    allocated(flags & LG_ALIGN ? ALIGNED : MALLOC, size, block);
    return block;
}

API void *rallocx(void *block, size_t size, int flags)
{
    if ((unlikely(next_malloc == NULL) && !resolve()) || next_rallocx == NULL)
        return NULL;
    uint64_t id = reallocating(block);
    void *moved = next_rallocx(block, size, flags);
    reallocated(block, id, size, moved);
    allocated(REALLOC, size, moved);
    return moved;
}

API void dallocx(void *block, int flags)
{
    if ((unlikely(next_malloc == NULL) && !resolve()) || next_dallocx == NULL)
        return;
    freeing(block);
    next_dallocx(block, flags);
}

API void sdallocx(void *block, size_t size, int flags)
{
    if ((unlikely(next_malloc == NULL) && !resolve()) || next_sdallocx == NULL)
        return;
    freeing(block);
    next_sdallocx(block, size, flags);
}

/* Libraries may have come since the start: what is mapped now names more of the call chains. */
__attribute__((destructor)) static void finish(void)
{
    struct own *mine = own;
    if (mine == NULL || mine->state != 2)
        return;
    int error = errno;
    mine->head->has_ended = 1;
    uint64_t signals = hold_size_signal();
    save_maps();
    release_size_signal(signals);
    errno = error;
}
