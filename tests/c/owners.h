/* Blocks that two threads had at once would hold the other's bytes. */
#ifndef OWNERS_H
#define OWNERS_H
#include "check.h"

/* Takes, marks, checks and frees blocks, so many rounds. */
static inline void use_blocks(int rounds, unsigned char mark) {
    enum { BLOCKS = 64, BYTES = 48 };
    unsigned char *blocks[BLOCKS];
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < BLOCKS; i++) memset(blocks[i] = malloc(BYTES), mark, BYTES);
        for (int i = 0; i < BLOCKS; i++)
            for (int byte = 0; byte < BYTES; byte++) CHECK(blocks[i][byte] == mark, "a block has two owners");
        for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    }
}
#endif
