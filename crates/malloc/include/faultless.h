/* faultless.h - what libfaultless offers beyond the C library's allocation functions.
 *
 * Linking libfaultless (or preloading it) replaces malloc, free, calloc, realloc, reallocarray, aligned_alloc,
 * posix_memalign, memalign, valloc, pvalloc, malloc_usable_size, free_sized, free_aligned_sized, mallopt, malloc_trim,
 * mallinfo, mallinfo2, malloc_stats, malloc_info and all C++ operator new and delete: nothing of this header is needed
 * for that.
 */
#ifndef FAULTLESS_H
#define FAULTLESS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of the library, such as "0.1.0". Never null. */
const char *faultless_version(void);

/* Gives every page that can be given back to the kernel, also from the caches of other threads.
 * Returns the number of bytes, which were not all resident. Safe at any time, from any thread. */
size_t faultless_trim(void);

/* C23; some C libraries do not declare them yet. A size larger than the block ends the process with a message. */
void free_sized(void *block, size_t bytes);
void free_aligned_sized(void *block, size_t alignment, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
