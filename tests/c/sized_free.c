/* C23's free_sized and free_aligned_sized, and the old cfree, free what the other functions gave. */
#include "check.h"
#include <dlfcn.h>

static void plain(void *p, size_t n) { (void)n, free(p); }
static void plain_aligned(void *p, size_t alignment, size_t n) { (void)alignment, (void)n, free(p); }

int main(void) {
    void (*sized)(void *, size_t) = (void (*)(void *, size_t))dlsym(RTLD_DEFAULT, "free_sized");
    void (*aligned)(void *, size_t, size_t) =
        (void (*)(void *, size_t, size_t))dlsym(RTLD_DEFAULT, "free_aligned_sized");
    void (*old)(void *) = (void (*)(void *))dlsym(RTLD_DEFAULT, "cfree");
    if (preloaded()) CHECK(sized && aligned && old, "free_sized %p, free_aligned_sized %p, cfree %p", sized, aligned, old);
    if (!sized) sized = plain;
    if (!aligned) aligned = plain_aligned;
    if (!old) old = free;

    size_t start = 0;
    for (int round = 0; round < 60; round++) {
        for (size_t n = 0; n < 4 * MIB; n = n * 9 / 7 + 1) {
            unsigned char *p = malloc(n), *q = calloc(1, n), *r = realloc(malloc(5), n ? n : 1);
            CHECK(p && q && r, "no memory for %zu", n);
            if (n) p[0] = q[n - 1] = r[0] = 1;
            errno = 12;
            sized(p, n), sized(q, n), sized(r, n ? n : 1);
            CHECK(errno == 12, "free_sized(%zu) set errno to %d", n, errno);
            size_t alignment = (size_t)8 << round % 14;
            unsigned char *a = aligned_alloc(alignment, n);
            CHECK(a != NULL, "aligned_alloc(%zu, %zu) returned NULL", alignment, n);
            if (n) a[n - 1] = 1;
            aligned(a, alignment, n);
            CHECK(errno == 12, "free_aligned_sized(%zu, %zu) set errno to %d", alignment, n, errno);
            old(malloc(n));
        }
        if (round == 14) start = kept_bytes();
    }
    sized(NULL, 0), sized(NULL, 100), aligned(NULL, 64, 100), old(NULL);
    CHECK(kept_bytes() < start + MIB, "resident memory grew by %zu KiB", (kept_bytes() - start) / KIB);
    return 0;
}
