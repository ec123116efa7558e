/* What closed_plugin.c opens; linked with libfaultless.a. */
#include <stdlib.h>
#include <string.h>

void allocate_and_free(void) {
    for (size_t bytes = 1; bytes < 3000; bytes++) {
        char *block = malloc(bytes);
        memset(block, 1, bytes);
        free(block);
    }
}
