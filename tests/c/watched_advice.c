/* A library that registers memory with a network card writes a jump to the beginning of libc's madvise, to know when pages go: it hears of
 * all that a block gives back or moves. */
#include "check.h"
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum { MOST = 4096 };
static struct { uintptr_t from, to; } gone[MOST];
static size_t count;

static int hear(void *address, size_t bytes, int advice) {
    if (advice == MADV_DONTNEED && count < MOST) {
        gone[count].from = (uintptr_t)address, gone[count].to = (uintptr_t)address + bytes;
        count++;
    }
    return (int)syscall(SYS_madvise, address, bytes, advice);
}
/* Whether it could. */
static bool watch(void) {
    uintptr_t place = (uintptr_t)madvise, page = place & -(uintptr_t)4096;
    unsigned char jump[] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0}; /* mov rax, ...; jmp rax */
    uintptr_t target = (uintptr_t)hear;
    memcpy(jump + 2, &target, sizeof target);
    if (mprotect((void *)page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) return false;
    memcpy((void *)place, jump, sizeof jump);
    return mprotect((void *)page, 8192, PROT_READ | PROT_EXEC) == 0;
}
/* The first byte of a page of the range that was not told to be gone, or SIZE_MAX. */
static size_t first_untold(uintptr_t from, size_t bytes) {
    for (uintptr_t at = from; at < from + bytes; at += 4096) {
        bool is_told = false;
        for (size_t i = 0; i < count && !is_told; i++) is_told = gone[i].from <= at && at < gone[i].to;
        if (!is_told) return at - from;
    }
    return SIZE_MAX;
}

int main(void) {
    enum { LARGE = 64 * MIB };
    free(opaque(malloc(100)));
    if (!watch()) return say_skipped("libc's code may not be changed"), 0;
    char *block = malloc(LARGE), *behind = malloc(MIB);
    memset(block, 1, LARGE);
    errno = 7;
    uintptr_t before = (uintptr_t)block;
    char *moved = realloc(block, LARGE + 4 * MIB);
    CHECK(moved != NULL && errno == 7, "errno %d", errno);
    if (preloaded()) {
        CHECK((uintptr_t)moved != before, "not moved");
        CHECK(first_untold(before + 4096, LARGE - 8192) == SIZE_MAX, "moved: nobody heard of %#zx", first_untold(before + 4096, LARGE - 8192));
    }
    count = 0;
    uintptr_t after = (uintptr_t)moved;
    free(moved);
    malloc_trim(0);
    if (preloaded())
        CHECK(first_untold(after + 4096, LARGE - 8192) == SIZE_MAX, "freed: nobody heard of %#zx", first_untold(after + 4096, LARGE - 8192));
    free(behind);
    return 0;
}
