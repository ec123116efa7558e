#include "counting.h"

COLD void allocated_without_ring(enum operation operation, size_t size, void *block)
{
    struct ring *ring = asked_for_ring();
    if (ring)
        count_allocated(ring, operation, size, block);
    counted(ring);
}

COLD void freeing_without_ring(const void *block)
{
    struct ring *ring = asked_for_ring();
    uint64_t id;
    if (ring)
        count_freeing(ring, block);
    else if ((id = forget_anyway(block)) != 0)
        describe_free(NULL, id, 0);
    counted(ring);
}
