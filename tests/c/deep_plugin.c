/* A shared library that allocates, frees and grows for deepbind.c, which opens it with RTLD_DEEPBIND. */
#include "check.h"
#include <malloc.h>

void *deep_allocate(size_t n);
void *deep_allocate(size_t n) { return malloc(n); }
void *deep_grow(void *block, size_t n);
void *deep_grow(void *block, size_t n) { return realloc(block, n); }
void deep_free(void *block);
void deep_free(void *block) { free(block); }
char *deep_copy(const char *text);
char *deep_copy(const char *text) {
    char *first = strdup(text), *second = strdup(first);
    free(first);
    return second;
}
size_t deep_usable(void *block);
size_t deep_usable(void *block) { return malloc_usable_size(block); }
