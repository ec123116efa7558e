/*
 * Described, with its call chain, is one of every `period` allocations of a size class in a thread: all of them until
 * they come faster than so many a second, then fewer, at a place chosen at random in each run of `period` calls, so
 * that every call has the same chance.
 */
#ifndef FAULTLESS_RECORDER_DESCRIBED_H
#define FAULTLESS_RECORDER_DESCRIBED_H

#include <stddef.h>
#include <stdint.h>

#include "attributes.h"
#include "layout.h"

#pragma GCC visibility push(hidden)

/* An allocation whose turn it is, and the choice of the next one. */
COLD void describe(struct ring *ring, enum operation operation, size_t size, void *block, unsigned class);
/* The free of a block that was remembered; without a ring where the thread found no room for one. */
COLD void describe_free(struct ring *ring, uint64_t id, int is_by_realloc);

#pragma GCC visibility pop

#endif
