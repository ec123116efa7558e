/*
 * dgemm: a matrix product as a math library makes it. Every call packs panels of its operands into buffers of its own
 * (fresh from mmap, so that each call faults them in), multiplies the packed panels, and gives the buffers back.
 *
 * Usage: dgemm [CALLS]. Prints one line:
 *   dgemm calls=N checksum=N expected=N
 * Exit status 1 when the checksum is wrong, 2 when memory ran out or CALLS is no number.
 */
#define _DEFAULT_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { DEFAULT_CALLS = 200, ROWS = 8, COLUMNS = 512, INNER = 256 };

static double *panel(size_t elements)
{
    size_t bytes = elements * sizeof(double);
    double *panel = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (panel == MAP_FAILED) {
        fprintf(stderr, "dgemm: out of memory for %zu bytes\n", bytes);
        exit(2);
    }
    return panel;
}

/* c += a * b, row-major; b is packed by columns first. */
__attribute__((noinline)) static void dgemm(const double *a, const double *b, double *c)
{
    double *packed = panel((size_t)COLUMNS * INNER);
    for (int k = 0; k < INNER; k++)
        for (int j = 0; j < COLUMNS; j++)
            packed[(size_t)j * INNER + k] = b[(size_t)k * COLUMNS + j];
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS; j++) {
            double sum = 0.0;
            for (int k = 0; k < INNER; k++)
                sum += a[(size_t)i * INNER + k] * packed[(size_t)j * INNER + k];
            c[(size_t)i * COLUMNS + j] += sum;
        }
    munmap(packed, (size_t)COLUMNS * INNER * sizeof(double));
}

int main(int argc, char **argv)
{
    int calls = DEFAULT_CALLS;
    if (argc > 1) {
        char *end;
        calls = (int)strtol(argv[1], &end, 10);
        if (*end != '\0' || calls < 1) {
            fprintf(stderr, "dgemm: CALLS must be a positive number, not %s\n", argv[1]);
            return 2;
        }
    }
    static double a[ROWS * INNER], b[INNER * COLUMNS], c[ROWS * COLUMNS];
    for (int i = 0; i < ROWS * INNER; i++)
        a[i] = i % 3;
    for (int i = 0; i < INNER * COLUMNS; i++)
        b[i] = i % 5;
    for (int call = 0; call < calls; call++)
        dgemm(a, b, c);

    double checksum = 0.0, expected = 0.0;
    for (int i = 0; i < ROWS * COLUMNS; i++)
        checksum += c[i];
    for (int k = 0; k < INNER; k++) {
        double of_a = 0.0, of_b = 0.0;
        for (int i = 0; i < ROWS; i++)
            of_a += (i * INNER + k) % 3;
        for (int j = 0; j < COLUMNS; j++)
            of_b += (k * COLUMNS + j) % 5;
        expected += of_a * of_b * calls;
    }
    printf("dgemm calls=%d checksum=%.0f expected=%.0f\n", calls, checksum, expected);
    return checksum == expected ? 0 : 1;
}
