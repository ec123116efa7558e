/*
 * chem: the case of "A Study in Malloc" (Ezolt, ALS 2001) as a program of one page.
 *
 * A chemistry code calls a math library's matrix product; the library allocates two work buffers on every call,
 * packs the operands into them, multiplies, and frees them. With glibc's defaults both buffers go back to the
 * kernel at every free and are faulted in again at every call. The program keeps one small result a call, as such
 * codes do, then frees its matrices and sits idle for a second: what is still resident then is what the allocator
 * did not give back.
 *
 * Usage: chem [CALLS]. Prints one line:
 *   chem calls=N checksum=N expected=N rss_start_kib=N rss_idle_kib=N
 * Exit status 1 when the checksum is wrong, 2 when memory ran out or CALLS is no number.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    DEFAULT_CALLS = 1500,
    ROWS = 512,   /* of a, and columns of b */
    INNER = 1024, /* columns of a and rows of b: a panel is ROWS * INNER doubles = 4 MiB */
    TILE = 4,     /* each call multiplies one TILE x TILE part of the product */
};

#define PANEL_BYTES ((size_t)ROWS * INNER * sizeof(double))

struct result {
    struct result *next;
    double trace;
};

static void *allocate(size_t bytes)
{
    void *block = malloc(bytes);
    if (block == NULL) {
        fprintf(stderr, "chem: out of memory for %zu bytes\n", bytes);
        exit(2);
    }
    return block;
}

/* Resident set of this process in KiB, exact (smaps_rollup); read without stdio, which would allocate. */
static long resident_kib(void)
{
    char text[2048];
    int file = open("/proc/self/smaps_rollup", O_RDONLY);
    if (file < 0)
        return -1;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    if (length <= 0)
        return -1;
    text[length] = '\0';
    const char *field = strstr(text, "\nRss:");
    return field == NULL ? -1 : strtol(field + 5, NULL, 10);
}

/* One call of the library: pack both operands, multiply one tile of the product, return the tile's sum. */
static double dgemm_tile(const double *a, const double *b_transposed, int row, int column)
{
    double *packed_a = allocate(PANEL_BYTES);
    double *packed_b = allocate(PANEL_BYTES);
    memcpy(packed_a, a, PANEL_BYTES);
    memcpy(packed_b, b_transposed, PANEL_BYTES);

    double sum = 0.0;
    for (int i = row; i < row + TILE; i++)
        for (int j = column; j < column + TILE; j++)
            for (int k = 0; k < INNER; k++)
                sum += packed_a[(size_t)i * INNER + k] * packed_b[(size_t)j * INNER + k];

    free(packed_b);
    free(packed_a);
    return sum;
}

/* Small integers as elements: every sum is exact in a double, so the check is an equality. */
static double element_of_a(int row, int k) { return (row * 7 + k * 3) % 5; }
static double element_of_b(int column, int k) { return (column * 5 + k * 11) % 7; }

static double expected_tile(int row, int column)
{
    double sum = 0.0;
    for (int i = row; i < row + TILE; i++)
        for (int j = column; j < column + TILE; j++)
            for (int k = 0; k < INNER; k++)
                sum += element_of_a(i, k) * element_of_b(j, k);
    return sum;
}

static int tile_row(int call) { return call * 13 % (ROWS / TILE) * TILE; }
static int tile_column(int call) { return call * 29 % (ROWS / TILE) * TILE; }

int main(int argc, char **argv)
{
    int calls = DEFAULT_CALLS;
    if (argc > 1) {
        char *end;
        calls = (int)strtol(argv[1], &end, 10);
        if (*end != '\0' || calls < 1) {
            fprintf(stderr, "chem: CALLS must be a positive number, not %s\n", argv[1]);
            return 2;
        }
    }
    long rss_start_kib = resident_kib();

    double *a = allocate(PANEL_BYTES);
    double *b_transposed = allocate(PANEL_BYTES);
    for (int row = 0; row < ROWS; row++)
        for (int k = 0; k < INNER; k++) {
            a[(size_t)row * INNER + k] = element_of_a(row, k);
            b_transposed[(size_t)row * INNER + k] = element_of_b(row, k);
        }

    struct result *results = NULL;
    for (int call = 0; call < calls; call++) {
        double trace = dgemm_tile(a, b_transposed, tile_row(call), tile_column(call));
        struct result *result = allocate(sizeof *result);
        result->trace = trace;
        result->next = results;
        results = result;
    }
    free(b_transposed);
    free(a);

    double checksum = 0.0;
    for (struct result *result = results; result != NULL; result = result->next)
        checksum += result->trace;
    double expected = 0.0;
    for (int call = 0; call < calls; call++)
        expected += expected_tile(tile_row(call), tile_column(call));

    sleep(1);
    long rss_idle_kib = resident_kib();
    printf("chem calls=%d checksum=%.0f expected=%.0f rss_start_kib=%ld rss_idle_kib=%ld\n", calls, checksum,
           expected, rss_start_kib, rss_idle_kib);
    return checksum == expected ? 0 : 1;
}
