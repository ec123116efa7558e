/* Beside a Rust library that shares Rust's own library: a panic there is caught there. */
#include "check.h"

int digit_of(char letter);

int main(void) {
    char *block = strdup("7x");
    CHECK(digit_of(block[0]) == 7, "the digit is %d", digit_of(block[0]));
    CHECK(digit_of(block[1]) == -1, "no digit is %d", digit_of(block[1]));
    free(block);
    return 0;
}
