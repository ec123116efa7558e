/* A C program built with the installed header: what faultless.h declares is there and works. */
#include "check.h"
#include <faultless.h>

int main(void) {
    CHECK(strcmp(faultless_version(), "0.1.0") == 0, "the version is %s", faultless_version());
    char *block = malloc(100 * KIB);
    CHECK(block != NULL, "no memory");
    memset(block, 1, 100 * KIB);
    free_sized(block, 100 * KIB);
    faultless_trim();
    CHECK(faultless_trim() == 0, "a second trim finds something to give back");
    return 0;
}
