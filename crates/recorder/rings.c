#define _GNU_SOURCE
#include "rings.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "os.h"

/* The oldest version of each symbol, so that an old glibc can load us. */
#ifdef __x86_64__
__asm__(".symver pthread_key_create,pthread_key_create@GLIBC_2.2.5");
__asm__(".symver pthread_setspecific,pthread_setspecific@GLIBC_2.2.5");
#pragma weak pthread_key_create
#pragma weak pthread_setspecific
#endif

THREAD_LOCAL struct ring *my_ring;
THREAD_LOCAL uint32_t my_generation;
THREAD_LOCAL uint8_t busy;

/* The generation without a ring for this thread, and the one that counts it as bare. */
static THREAD_LOCAL uint32_t my_refusal;
static THREAD_LOCAL uint32_t my_bareness;
/*
 * Our destructor has run: it may be the last. libc frees buffers of a thread after all of them, and nobody would
 * release a ring that is taken there: such a thread has one for the time of a call.
 */
static THREAD_LOCAL uint8_t is_leaving;
static pthread_key_t key;
static int has_key;
/* What `own` says before a fork; a child finds it wiped. */
static THREAD_LOCAL uint8_t *parents_memory;
static THREAD_LOCAL struct tracked (*parents_tracked)[WAYS];

static int is_bare(const struct ring *ring)
{
    return (const uint8_t *)ring >= own->bare;
}

/* Of all rings: the bare ones come last. */
static struct ring *ring_at(struct own *mine, uint64_t place)
{
    return place < RINGS ? &mine->rings[place] : (struct ring *)(mine->bare + (place - RINGS) * BARE_RING_BYTES);
}

static uint64_t place_of(struct own *mine, const struct ring *ring)
{
    if (is_bare(ring))
        return RINGS + (uint64_t)((const uint8_t *)ring - mine->bare) / BARE_RING_BYTES;
    return (uint64_t)(ring - mine->rings);
}

int has_room(struct ring *ring, uint64_t bytes)
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

int write_record(struct ring *ring, enum kind kind, const uint64_t *words, unsigned number, const void *more,
                 uint64_t more_bytes)
{
    uint64_t length = 8 + number * 8 + more_bytes;
    if (!has_room(ring, length))
        return 0;
    uint64_t at = atomic_load_explicit(&ring->head, memory_order_relaxed);
    uint64_t header = (uint64_t)kind | length << 32;
    put(ring, at, &header, 8);
    put(ring, at + 8, words, number * 8);
    if (more_bytes > 0)
        put(ring, at + 8 + number * 8, more, more_bytes);
    atomic_store_explicit(&ring->head, at + length, memory_order_release);
    return 1;
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
    uint64_t at = (uint64_t)((uint8_t *)ring - (uint8_t *)mine->head);
    if (!make_room_in_file(at, is_bare(ring) ? BARE_RING_BYTES : sizeof(struct ring))) {
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

static COLD void give_back(struct ring *ring)
{
    atomic_store_explicit(&own->ring_states[place_of(own, ring)], FREE, memory_order_release);
}

/* At the end of a thread. */
static void release_ring(void *unused)
{
    (void)unused;
    struct ring *ring = my_ring;
    my_ring = NULL;
    is_leaving = 1;
    /* A signal handler that calls malloc from here on must not write into a ring that may be another thread's. */
    atomic_signal_fence(memory_order_seq_cst);
    if (ring && has_file(own) && my_generation == generation)
        give_back(ring);
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

static struct ring *take_and_begin_ring(struct own *mine)
{
    struct ring *ring = take_ring(mine);
    if (ring) {
        begin_ring(ring, own_tid());
    } else {
        my_refusal = generation;
        atomic_fetch_add(&mine->head->unringed, 1);
        mine->head->has_missed = 1;
    }
    return ring;
}

static void before_fork(void)
{
    parents_memory = has_file(own) && my_ring && my_generation == generation ? (uint8_t *)own->head : NULL;
    parents_tracked = own ? own->tracked : NULL;
}

/*
 * A signal handler may fork while this thread counts a call, and the child return there: it finishes in memory that
 * nobody reads, at the places of the file that it does not have.
 */
static void in_child(void)
{
    if (parents_memory == NULL)
        return;
    point_into(own, parents_memory, parents_tracked);
    const struct {
        void *at;
        uint64_t bytes;
    } parts[] = {{own->head, PAGE},
                 {own->spill, SPILL_PLACES * sizeof(struct spilled)},
                 {my_ring, is_bare(my_ring) ? BARE_RING_BYTES : sizeof(struct ring)}};
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    for (unsigned part = 0; part < sizeof parts / sizeof *parts; part++)
        mmap(parts[part].at, parts[part].bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
}

static COLD struct ring *attach(void)
{
    /* A thread that found no room stays unseen: to ask again at each call would cost more than malloc. */
    if (busy || (my_refusal != 0 && my_refusal == generation && own->state == MADE)) {
        if (has_file(own) && !own->head->has_missed)
            own->head->has_missed = 1;
        return NULL;
    }
    busy = 1;
    int error = errno;
    if (begin_file() && !has_key && pthread_key_create) {
        has_key = pthread_key_create(&key, release_ring) == 0;
        pthread_atfork(before_fork, NULL, in_child);
    }
    /* While another thread sets up, this one is not counted; there is only one thread after fork and at the start. */
    struct ring *ring = has_file(own) ? take_and_begin_ring(own) : NULL;
    errno = error;
    busy = 0;
    return ring;
}

struct ring *asked_for_ring(void)
{
    struct own *mine = own;
    return mine != NULL && mine->state == CANNOT_BE ? NULL : attach();
}

void counted(struct ring *ring)
{
    if (ring != my_ring && ring != NULL)
        give_back(ring);
}
