/* A library whose large blocks are all one piece of memory: programs that check what they wrote must notice. */
#include "check.h"

#include <sys/mman.h>

extern void *__libc_malloc(size_t bytes);
extern void __libc_free(void *block);

enum { LARGE_BYTES = 8 << 10, PIECE_BYTES = 64 << 10 };

static char *room, *room_end, *next;

/* Blocks are mapped one behind the other and never unmapped. */
static void *map_pieces(size_t bytes)
{
    if (room == NULL) {
        size_t room_bytes = (size_t)1 << 30;
        room = mmap(NULL, room_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        CHECK(room != MAP_FAILED, "no room: errno %d", errno);
        room_end = room + room_bytes;
        next = room;
    }
    int file = memfd_create("piece", 0);
    CHECK(file >= 0 && ftruncate(file, PIECE_BYTES) == 0, "no file: errno %d", errno);
    char *block = next;
    for (; next < block + bytes; next += PIECE_BYTES) {
        void *mapped = mmap(next, PIECE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
        CHECK(next < room_end && mapped == next, "no piece of %zu bytes: errno %d", bytes, errno);
    }
    close(file);
    return block;
}

void *malloc(size_t bytes) { return bytes < LARGE_BYTES ? __libc_malloc(bytes) : map_pieces(bytes); }

void *calloc(size_t count, size_t bytes)
{
    char *block = malloc(count * bytes);
    if (block != NULL && count * bytes < LARGE_BYTES)
        for (volatile char *byte = block; byte < block + count * bytes; byte++)
            *byte = 0;
    return block;
}

void free(void *block)
{
    if (room == NULL || (char *)block < room || (char *)block >= room_end)
        __libc_free(block);
}
