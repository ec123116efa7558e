/* A shared library that allocates when it comes and when it goes; loaded by plugin_loop.c. */
#include "check.h"

static unsigned char *own;
__attribute__((constructor)) static void come(void) {
    own = malloc(5000);
    fill(own, 5000, 6);
}
__attribute__((destructor)) static void go(void) {
    CHECK_PATTERN(own, 5000, 5000, 6);
    free(own);
    free(malloc(70000));
}
static __thread unsigned char *per_thread;
unsigned char *plugin_block(size_t n);
unsigned char *plugin_block(size_t n) {
    free(per_thread);
    per_thread = NULL;
    unsigned char *p = malloc(n);
    fill(p, n, 8);
    return p;
}
