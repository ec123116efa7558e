/* A program that calls no function of an allocator itself: only the C library does, for it. Weak, since a reference would load or link
 * the library by itself. */
#include <stdio.h>
#include <string.h>

extern const char *faultless_version(void) __attribute__((weak));

int main(int count, char **words) {
    char *copy = strdup(words[count - 1]);
    if (!copy || !faultless_version) {
        fputs("Faultless is not in this program\n", stderr);
        return 1;
    }
    puts(copy);
    return 0;
}
