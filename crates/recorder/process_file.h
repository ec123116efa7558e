/* The file of this process, and what else is kept of it. A child of fork begins anew: the kernel wipes `own`. */
#ifndef FAULTLESS_RECORDER_PROCESS_FILE_H
#define FAULTLESS_RECORDER_PROCESS_FILE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "attributes.h"
#include "layout.h"

enum { WAYS = 4 };

/* A block whose allocation was described; `remembered.h` says the rest. */
struct tracked {
    _Atomic uintptr_t address; /* 0: free, 1: being written */
    uint64_t id;
};

enum { TRACKED_BUCKETS = 1 << 15 }; /* of one cache line each */
_Static_assert(sizeof(struct tracked[WAYS]) == 64, "a bucket is a cache line");

enum file_state { NOT_BEGUN, BEING_MADE, MADE, CANNOT_BE };
enum ring_state { NEVER_MADE, IN_USE, FREE };

/* Wiped in a child of fork: all zero means that there is no file yet. */
struct own {
    _Atomic uint32_t state; /* a file_state */
    _Atomic uint64_t next_id;
    struct head *head;
    struct ring *rings;
    struct tracked (*tracked)[WAYS];
    struct spilled *spill;
    uint8_t *bare;             /* the bare rings; behind all others in the file and in memory */
    _Atomic uint64_t reserved; /* places of `spill` kept for remembered blocks */
    _Atomic uint64_t roomy;    /* places of `spill` that have room in the file */
    /* Not in the file: a ring that was never made is a hole there, which a full disk ends us for reading. */
    _Atomic uint8_t ring_states[RINGS + BARE_RINGS];
};
_Static_assert(sizeof((struct own *)0)->next_id == sizeof((struct tracked *)0)->id, "no two blocks have one number");

#pragma GCC visibility push(hidden)

extern struct own *own;
/* Which file it is since the process's first ancestor that had one: after a fork another. */
extern _Atomic uint32_t generation;

/* Begins the file where there is none, by whoever comes first: true for that one. */
int begin_file(void);

/* The file is in memory there; the blocks that are remembered are `tracked`. */
void point_into(struct own *mine, uint8_t *memory, struct tracked (*tracked)[WAYS]);

/* False where there is no room. */
int make_room_in_file(uint64_t at, uint64_t bytes);

#pragma GCC visibility pop

INLINE int has_file(const struct own *mine)
{
    return likely(mine != NULL && mine->state == MADE);
}

#endif
