/* The layout of the file. Read by crates/records/src/malloc_event.rs; change both together. */
#ifndef FAULTLESS_RECORDER_LAYOUT_H
#define FAULTLESS_RECORDER_LAYOUT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum {
    VERSION = 2,
    PAGE = 4096,
    CLASSES = 64, /* of sizes: powers of two */
    RINGS = 1024,
    BARE_RINGS = 15 * 1024, /* for the threads beyond: counts, and no room for records */
    RING_BYTES = 1 << 20,   /* of records; a power of two */
    SPILL_PLACES = 1 << 17, /* a power of two */
    SPILL_STEP = 512,       /* places that get room at once */
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
    _Atomic uint64_t rings;     /* places up to the last one made */
    _Atomic uint64_t untracked; /* described blocks that found no place to be remembered */
    _Atomic uint64_t unringed;  /* threads without a ring */
    uint64_t fast_ps;           /* picoseconds that counting one call takes, measured at the start */
    uint64_t has_ended;         /* the process exited in the ordinary way */
    uint64_t namespace;         /* the inode of the PID namespace in which `pid` counts; 0: not known */
    _Atomic uint64_t spill_head;
    uint64_t is_forked;            /* a child of fork: it may free what its parent allocated */
    _Atomic uint64_t has_missed;   /* a call was not counted */
    _Atomic uint64_t bare_rings;   /* places up to the last one made */
    _Atomic uint64_t bare_threads; /* threads that got one of these */
    uint64_t pad;
    _Atomic uint64_t spill_tail; /* the tool's */
};
_Static_assert(offsetof(struct head, spill_tail) == 128, "the tool knows where it writes");

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

/* Bytes of a bare ring. */
#define BARE_RING_BYTES ((uint64_t)offsetof(struct ring, records))

/* Where in the file the places for frees begin, and the bare rings behind them. */
#define SPILL_AT (PAGE + (uint64_t)RINGS * sizeof(struct ring))
#define BARE_RINGS_AT (SPILL_AT + SPILL_PLACES * sizeof(struct spilled))
#define FILE_BYTES (BARE_RINGS_AT + BARE_RINGS * BARE_RING_BYTES)

#endif
