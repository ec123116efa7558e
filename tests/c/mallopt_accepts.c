/* mallopt takes glibc's parameters and says 1, and allocation goes on as before. */
#include "check.h"

int main(void) {
    struct { int parameter, value; } settings[] = {
        {M_MMAP_THRESHOLD, 1 << 20}, {M_TRIM_THRESHOLD, 1 << 20}, {M_TOP_PAD, 1 << 16}, {M_MMAP_MAX, 1000},
        {M_ARENA_MAX, 2}, {M_ARENA_TEST, 2}, {M_MXFAST, 64}, {M_NLBLKS, 100}, {M_GRAIN, 16}, {M_KEEP, 1},
        {M_CHECK_ACTION, 1}};
    for (size_t i = 0; i < COUNT_OF(settings); i++) {
        int answer = mallopt(settings[i].parameter, settings[i].value);
        CHECK(answer == 1, "mallopt(%d, %d) returned %d", settings[i].parameter, settings[i].value, answer);
        for (size_t n = 1; n < 3 * MIB; n = n * 3 / 2 + 1) {
            unsigned char *p = malloc(n);
            CHECK(p != NULL, "malloc(%zu) returned NULL", n);
            fill(p, n, n);
            CHECK_PATTERN(p, n, n, n);
            free(p);
        }
    }
    return 0;
}
