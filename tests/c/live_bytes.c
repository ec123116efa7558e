/* A library that counts the most bytes that were asked for and not yet freed, and says so at the end. */
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

extern void *__libc_malloc(size_t bytes);
extern void __libc_free(void *block);

enum { HEAD_BYTES = 16 };

static _Atomic size_t live_bytes, peak_bytes;

void *malloc(size_t bytes)
{
    char *block = __libc_malloc(bytes + HEAD_BYTES);
    if (block == NULL)
        return NULL;
    *(size_t *)block = bytes;
    size_t live = atomic_fetch_add(&live_bytes, bytes) + bytes, peak = atomic_load(&peak_bytes);
    while (live > peak && !atomic_compare_exchange_weak(&peak_bytes, &peak, live))
        ;
    return block + HEAD_BYTES;
}

void *calloc(size_t count, size_t bytes)
{
    char *block = malloc(count * bytes);
    if (block != NULL)
        for (volatile char *byte = block; byte < block + count * bytes; byte++)
            *byte = 0;
    return block;
}

void free(void *block)
{
    if (block == NULL)
        return;
    char *start = (char *)block - HEAD_BYTES;
    atomic_fetch_sub(&live_bytes, *(size_t *)start);
    __libc_free(start);
}

__attribute__((destructor)) static void say(void)
{
    char text[64];
    int length = snprintf(text, sizeof text, "live_bytes=%zu\n", atomic_load(&peak_bytes));
    if (write(STDERR_FILENO, text, (size_t)length) != length)
        _exit(3);
}
