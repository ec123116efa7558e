/* A program, or a library preloaded first, has a malloc family of its own over glibc's internal names. Those lead to the allocator,
 * never back by the public names. */
#include "check.h"

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void *__libc_valloc(size_t);
void *__libc_pvalloc(size_t);
void __libc_free(void *);

static int depth;
static size_t mallocs, callocs, reallocs, aligned, frees;

/* Counts a call; ends the process where the function behind comes back here, before the stack ends it. */
static void enter(size_t *calls) {
    CHECK(++depth == 1, "an internal name led back to the public one");
    ++*calls;
}
static void *leave(void *block) {
    depth--;
    return block;
}

void *malloc(size_t bytes) { return enter(&mallocs), leave(__libc_malloc(bytes)); }
void *calloc(size_t count, size_t bytes) { return enter(&callocs), leave(__libc_calloc(count, bytes)); }
void *realloc(void *old, size_t bytes) { return enter(&reallocs), leave(__libc_realloc(old, bytes)); }
void *memalign(size_t align, size_t bytes) { return enter(&aligned), leave(__libc_memalign(align, bytes)); }
void *valloc(size_t bytes) { return enter(&aligned), leave(__libc_valloc(bytes)); }
void *pvalloc(size_t bytes) { return enter(&aligned), leave(__libc_pvalloc(bytes)); }
void free(void *block) { enter(&frees), __libc_free(block), leave(NULL); }

int main(void) {
    size_t sizes[] = {0, 10, 3000, 40000, 5 * MIB};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        size_t bytes = sizes[i];
        free(malloc(bytes)), free(calloc(1, bytes)), free(memalign(64, bytes)), free(valloc(bytes)), free(pvalloc(bytes));
        void *block = realloc(NULL, bytes);
        block = realloc(block, 2 * bytes + 1);
        CHECK(block != NULL && realloc(block, opaque_size(0)) == NULL, "realloc of %zu bytes", bytes);
    }
    CHECK(mallocs >= 5 && callocs >= 5 && reallocs >= 15 && aligned >= 15 && frees >= 25,
          "calls: %zu %zu %zu %zu %zu", mallocs, callocs, reallocs, aligned, frees);
    /* reallocarray leads to the program's realloc, as glibc's does. */
    size_t before = reallocs;
    void *block = reallocarray(NULL, opaque_size(10), 10);
    CHECK(reallocs == before + 1, "reallocarray called realloc %zu times", reallocs - before);
    free(block);
    return 0;
}
