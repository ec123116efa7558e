/* Beside a Rust library that brings a Faultless of its own: blocks go back to the heap that they are of. */
#include "check.h"
#include <faultless.h>

size_t digits_below(size_t count);

int main(void) {
    for (int round = 0; round < 100; round++) {
        char *block = malloc(1000 + round * 1000);
        memset(block, round, 1000);
        CHECK(digits_below(1000) == 2890, "digits of the numbers below 1000");
        CHECK(block[999] == round, "round %d: the block holds %d", round, block[999]);
        free(block);
    }
    return 0;
}
