/* Alignments that are not allowed: EINVAL, and nothing else changes. */
#include "check.h"

int main(void) {
    void *const untouched = (void *)(uintptr_t)0x1230;
    size_t bad[] = {0, 1, 2, 3, 4, 7, 9, 12, 24, 48, 100, 4095, 4097, 3 * MIB, SIZE_MAX, SIZE_MAX - 7};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        void *p = untouched;
        errno = 77;
        int error = posix_memalign(&p, opaque_size(bad[i]), 100);
        CHECK(error == EINVAL, "posix_memalign(alignment %zu) returned %d, not EINVAL", bad[i], error);
        CHECK(p == untouched, "posix_memalign(alignment %zu) failed but wrote %p", bad[i], p);
        CHECK(errno == 77, "posix_memalign(alignment %zu) set errno to %d", bad[i], errno);
    }
    void *p = untouched;
    errno = 0;
    int error = posix_memalign(&p, 64, opaque_size(SIZE_MAX - 4096));
    CHECK(error == ENOMEM, "posix_memalign of SIZE_MAX-4096 bytes returned %d, not ENOMEM", error);
    CHECK(p == untouched, "posix_memalign that failed wrote %p", p);
    /* As in glibc, which promises nothing: programs print errno all the same. */
    CHECK(errno == ENOMEM, "posix_memalign without memory set errno to %d", errno);

    /* C23 and glibc 2.38: aligned_alloc refuses what is not a power of two. Before, glibc rounded it up. */
    if (preloaded()) {
        size_t odd[] = {0, 3, 24, 100, 4097, SIZE_MAX};
        for (size_t i = 0; i < COUNT_OF(odd); i++) {
            errno = 0;
            p = aligned_alloc(opaque_size(odd[i]), 128);
            CHECK(p == NULL && errno == EINVAL, "aligned_alloc(%zu, 128) returned %p with errno %d, not NULL with EINVAL",
                  odd[i], p, errno);
        }
    }
    /* memalign rounds up to a power of two, as glibc does; beyond the greatest power it is EINVAL. */
    size_t rounded[] = {0, 1, 3, 24, 100, 4097};
    for (size_t i = 0; i < COUNT_OF(rounded); i++) {
        size_t least = 16;
        while (least < rounded[i]) least *= 2;
        p = memalign(opaque_size(rounded[i]), 50);
        CHECK(p != NULL && (uintptr_t)p % least == 0, "memalign(%zu, 50) returned %p", rounded[i], p);
        free(p);
    }
    errno = 0;
    p = memalign(opaque_size(SIZE_MAX / 2 + 2), 50);
    CHECK(p == NULL && errno == EINVAL, "memalign(SIZE_MAX/2+2, 50) returned %p with errno %d", p, errno);
    /* A size that is no multiple of the alignment is allowed since C17. */
    p = aligned_alloc(64, 65);
    CHECK(p != NULL && (uintptr_t)p % 64 == 0, "aligned_alloc(64, 65) returned %p", p);
    free(p);
    return 0;
}
