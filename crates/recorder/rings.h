/* Rings: of each thread the counts of its calls, and records of some of them. */
#ifndef FAULTLESS_RECORDER_RINGS_H
#define FAULTLESS_RECORDER_RINGS_H

#include <stddef.h>
#include <stdint.h>

#include "attributes.h"
#include "layout.h"
#include "process_file.h"

#pragma GCC visibility push(hidden)

/* The ring that this thread keeps, and of which file it is. */
extern THREAD_LOCAL struct ring *my_ring;
extern THREAD_LOCAL uint32_t my_generation;
/* What this thread does is ours: not to be described. */
extern THREAD_LOCAL uint8_t busy;

/* For the call of a thread that has none so far; NULL where it gets none. To be followed by `counted`. */
struct ring *asked_for_ring(void);
void counted(struct ring *ring);

/* Room for a record of so many bytes, or 0. */
int has_room(struct ring *ring, uint64_t bytes);
/* Words, then bytes whose number is a multiple of 8; false without room. */
int write_record(struct ring *ring, enum kind kind, const uint64_t *words, unsigned number, const void *more,
                 uint64_t more_bytes);

#pragma GCC visibility pop

/* The ring that this thread has; it may still have to ask for one. */
INLINE struct ring *own_ring(void)
{
    struct ring *ring = my_ring;
    return likely(has_file(own) && ring != NULL && my_generation == generation) ? ring : NULL;
}

#endif
