#define _GNU_SOURCE
#include "process_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* from Linux 5.14 on */
#endif
#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

enum { LARGEST_PAGE = 1 << 16 };

struct own *own;
_Atomic uint32_t generation;

static struct own no_memory = {.state = CANNOT_BE};
static char rings_path[PAGE], maps_path[PAGE], new_maps_path[PAGE];

static char *decimal(char *end, uint64_t number)
{
    do {
        *--end = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    return end;
}

/* DIRECTORY/PID-TIME.rings, .maps and, until that is whole, .new */
static int make_paths(void)
{
    /* Asked once: a program may clean its environment before it forks. */
    static size_t directory_length;
    char *path = rings_path;
    if (directory_length == 0) {
        const char *directory = getenv("FAULTLESS_RECORDER");
        size_t bytes = directory ? strlen(directory) : 0;
        if (bytes == 0 || bytes + 64 > PAGE)
            return 0;
        memcpy(path, directory, bytes);
        path[bytes] = '/';
        directory_length = bytes + 1;
    }
    size_t length = directory_length;
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

/* The tool finds the names of call chains by what is mapped, when we are gone; it may look at any time. */
static void save_maps(void)
{
    copy_file("/proc/self/maps", new_maps_path, maps_path);
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

/* What has room becomes accessible: whoever locks all memory (mlockall) brings no more of the file in. */
static int open_to_us(void *memory, uint64_t bytes)
{
    return mprotect(memory, bytes, PROT_READ | PROT_WRITE) == 0;
}

/*
 * Room in the file for what is accessible already. Some file systems have no call for that (ext3, NFS before 4.2), and
 * after chroot or setuid there is no descriptor: then through memory, which refuses on a full disk, too.
 */
static int make_room_for(uint8_t *memory, uint64_t bytes, int file, uint64_t at)
{
    if (file >= 0 && make_room(file, at, bytes))
        return 1;
    return (file < 0 || errno == EOPNOTSUPP) && madvise(memory, bytes, MADV_POPULATE_WRITE) == 0;
}

/* The new file, in memory. Room is made for one ring now and for the others when they are needed. */
static uint8_t *map_file(void)
{
    uint8_t *memory = MAP_FAILED;
    uint64_t first_bytes = PAGE + sizeof(struct ring);
    int file = open_file(rings_path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW);
    if (file < 0)
        return MAP_FAILED;
    if (syscall(SYS_ftruncate, file, FILE_BYTES) == 0)
        memory = mmap(NULL, FILE_BYTES, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (memory != MAP_FAILED &&
        !(open_to_us(memory, first_bytes) && make_room_for(memory, first_bytes, file, 0))) {
        munmap(memory, FILE_BYTES);
        memory = MAP_FAILED;
    }
    close_file(file);
    return memory;
}

static void write_head(struct own *mine)
{
    struct head *head = mine->head;
    head->version = VERSION;
    head->ring_bytes = RING_BYTES;
    head->pid = syscall(SYS_getpid);
    head->namespace = own_namespace();
    head->start_ns = now_ns();
    head->is_forked = generation > 1;
    head->fast_ps = measure_fast(&mine->rings[0], mine->tracked);
    head->rings = 1;
}

void point_into(struct own *mine, uint8_t *memory, struct tracked (*tracked)[WAYS])
{
    mine->head = (struct head *)memory;
    mine->rings = (struct ring *)(memory + PAGE);
    mine->spill = (struct spilled *)(memory + SPILL_AT);
    mine->bare = memory + BARE_RINGS_AT;
    mine->tracked = tracked;
}

static void set_up(struct own *mine)
{
    mine->state = CANNOT_BE;
    if (!make_paths())
        return;
    uint8_t *memory = map_file();
    if (memory == MAP_FAILED)
        return;
    size_t tracked_bytes = TRACKED_BUCKETS * sizeof(*mine->tracked);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *tracked = mmap(NULL, tracked_bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (tracked == MAP_FAILED || madvise(memory, FILE_BYTES, MADV_DONTFORK) != 0 ||
        madvise(tracked, tracked_bytes, MADV_WIPEONFORK) != 0) {
        munmap(memory, FILE_BYTES);
        return;
    }
    /* What a call that a fork interrupted did in the child, too, is not of this file. */
    mine->next_id = mine->reserved = mine->roomy = 0;
    point_into(mine, memory, tracked);
    mine->ring_states[0] = FREE;
    write_head(mine);
    save_maps();
    /* The tool reads a file that begins with this. */
    atomic_thread_fence(memory_order_release);
    *(volatile uint64_t *)&mine->head->magic = MAGIC;
    mine->state = MADE;
}

int begin_file(void)
{
    if (own == NULL) {
        /* Only the first call of the process is here: threads come later. */
        struct own *mine = mmap(NULL, sizeof *mine, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (mine == MAP_FAILED || madvise(mine, sizeof *mine, MADV_WIPEONFORK) != 0)
            mine = &no_memory;
        own = mine;
    }
    uint32_t expected = NOT_BEGUN;
    if (!atomic_compare_exchange_strong(&own->state, &expected, BEING_MADE))
        return 0;
    atomic_fetch_add(&generation, 1);
    uint64_t signals = hold_size_signal();
    set_up(own);
    release_size_signal(signals);
    return 1;
}

int make_room_in_file(uint64_t at, uint64_t bytes)
{
    /* From the beginning of a page, however large pages are. */
    uint64_t before = at % LARGEST_PAGE;
    uint8_t *memory = (uint8_t *)own->head + at - before;
    if (!open_to_us(memory, before + bytes))
        return 0;
    int file = open_file(rings_path, O_RDWR | O_NOFOLLOW);
    int has_room = make_room_for(memory, before + bytes, file, at - before);
    close_file(file);
    return has_room;
}

/* Libraries may have come since the start: what is mapped now names more of the call chains. */
__attribute__((destructor)) static void finish(void)
{
    struct own *mine = own;
    if (!has_file(mine))
        return;
    int error = errno;
    mine->head->has_ended = 1;
    uint64_t signals = hold_size_signal();
    save_maps();
    release_size_signal(signals);
    errno = error;
}
