/* What glibc 2.43 has and older ones do not. */
#include_next <stdlib.h>

#ifndef NEWER_GLIBC
#define NEWER_GLIBC
__BEGIN_DECLS
extern void free_sized(void *block, size_t bytes) __THROW;
extern void free_aligned_sized(void *block, size_t alignment, size_t bytes) __THROW;
__END_DECLS
#endif
