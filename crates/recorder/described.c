#include "described.h"

#include <errno.h>

#include "os.h"
#include "remembered.h"
#include "rings.h"

enum {
    SAMPLES_A_SECOND = 2000, /* of one size class in one thread */
    ADAPT_AFTER = 64,        /* samples between looks at the clock */
    MOST_PERIOD = 1 << 24,
};

/* Where we are: the tool unwinds from here through us to the caller. */
struct place {
    uint64_t ip, sp, fp, lr;
};

INLINE struct place here(void)
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

static uint32_t below(struct ring *ring, uint32_t limit)
{
    ring->random ^= ring->random << 13;
    ring->random ^= ring->random >> 7;
    ring->random ^= ring->random << 17;
    return (uint32_t)((ring->random >> 32) * limit >> 32);
}

/* Longer where samples come faster than they shall, shorter where they come much slower. */
static uint32_t adapted(uint64_t period, uint64_t samples, uint64_t took_ns)
{
    uint64_t wanted_ns = samples * 1000000000u / SAMPLES_A_SECOND;
    if (took_ns < wanted_ns)
        period *= wanted_ns / took_ns < 8 ? wanted_ns / took_ns + 1 : 8;
    else if (took_ns > wanted_ns * 4)
        period /= took_ns / wanted_ns / 2;
    return (uint32_t)(period < 1 ? 1 : period > MOST_PERIOD ? MOST_PERIOD : period);
}

/* The next call to be described: one at random of the next `period`, after those that are left of this run. */
static void choose_next(struct ring *ring, struct stratum *stratum, uint64_t now)
{
    uint32_t left = stratum->rest;
    int is_full = !has_room(ring, RING_BYTES / 2);
    if (++stratum->samples >= ADAPT_AFTER || (is_full && stratum->samples >= ADAPT_AFTER / 8)) {
        stratum->period = adapted(stratum->period, stratum->samples, now - stratum->since_ns + 1);
        stratum->samples = 0;
        stratum->since_ns = now;
    }
    uint32_t place = stratum->period > 1 ? below(ring, stratum->period) : 0;
    stratum->countdown = left + place + 1;
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
    uint64_t id = atomic_fetch_add_explicit(&own->next_id, 1, memory_order_relaxed) + 1;
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

COLD void describe(struct ring *ring, enum operation operation, size_t size, void *block, unsigned class)
{
    describe_at(here(), ring, operation, size, block, class);
    /* No jump to it: our frame must stand while it looks. */
    __asm__ volatile("" ::: "memory");
}

COLD void describe_free(struct ring *ring, uint64_t id, int is_by_realloc)
{
    struct own *mine = own;
    struct freed freed = {now_ns(), id, ring ? ring->tid : own_tid(), (uint64_t)is_by_realloc};
    /* A signal handler may be here while its thread writes into the ring. */
    uint8_t was_busy = busy;
    busy = 1;
    int is_written =
        !was_busy && ring && write_record(ring, KIND_FREED, (const uint64_t *)&freed, sizeof freed / 8, NULL, 0);
    busy = was_busy;
    if (!is_written)
        spill(mine, &freed);
    give_up_room(mine);
}
