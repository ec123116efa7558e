/* pairs MODE SIZE COUNT: COUNT times one malloc and one free of SIZE bytes.
 * MODE "empty" calls two functions of one instruction (ret) instead, so that the loop's own cost is known. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *empty_malloc(size_t size);
void empty_free(void *block);
__asm__(".text\n.globl empty_malloc\nempty_malloc: ret\n.globl empty_free\nempty_free: ret\n");

static void *(*volatile allocate)(size_t) = malloc;
static void (*volatile release)(void *) = free;

int main(int count, char **words) {
    if (count != 4) {
        fprintf(stderr, "usage: pairs malloc|empty SIZE COUNT\n");
        return 2;
    }
    if (strcmp(words[1], "empty") == 0) {
        allocate = empty_malloc;
        release = empty_free;
    }
    size_t size = strtoul(words[2], NULL, 10);
    for (unsigned long left = strtoul(words[3], NULL, 10); left > 0; left--) {
        release(allocate(size));
    }
    return 0;
}
