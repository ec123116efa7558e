/* Threads allocate blocks of random sizes and free most of them in random order; then the program does what it is told on
 * standard input, a line at a time:
 *
 *   info   malloc_info
 *   trim   malloc_trim(0), and by how much the resident set fell
 *   divide advice and protection for pages of the heap and of a large block, so that the kernel divides their mappings
 *   quit
 *
 * usage: heap_survivors THREADS BLOCKS LARGEST KEEP_PERCENT SEED [sbrk|wall|busy]
 * sbrk: the main thread takes memory with sbrk now and then, so that the main heap comes in pieces.
 * wall: a page stands 1 MiB above the break, so that the main heap goes on in pieces that malloc maps, blocks between them.
 * busy: the threads go on allocating and freeing until the end. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int threads, blocks, largest, keep_percent, uses_sbrk, is_busy;
static volatile int is_over;
static pthread_barrier_t worked, ends;
/* Standard output must not allocate while it tells of allocations. */
static char output[1 << 22];

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Mostly small, a few up to the largest. */
static size_t size(uint64_t *state) {
    uint64_t pick = next(state) % 100;
    size_t most = pick < 80 ? 256 : pick < 99 ? 4096 : (size_t)largest;
    return 1 + next(state) % most;
}

static void take(char **held, uint64_t *state) {
    size_t bytes = size(state);
    *held = memset(malloc(bytes), 0x5a, bytes);
}

static void work(uint64_t seed, int is_main) {
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    char **held = calloc(blocks, sizeof *held);
    for (int i = 0; i < blocks; i++) {
        take(&held[i], &state);
        if (is_main && uses_sbrk && i % (blocks / 4 + 1) == blocks / 8) memset(sbrk(20000), 0x33, 20000);
    }
    for (int i = blocks - 1; i > 0; i--) {
        int j = next(&state) % (i + 1);
        char *swap = held[i];
        held[i] = held[j];
        held[j] = swap;
    }
    for (int i = (int)((long)blocks * keep_percent / 100); i < blocks; i++) {
        free(held[i]);
        held[i] = NULL;
    }
    while (is_busy && !is_main && !is_over) {
        char **one = &held[next(&state) % blocks];
        free(*one);
        take(one, &state);
    }
}

static void *body(void *argument) {
    if (is_busy) pthread_barrier_wait(&worked);
    work((uintptr_t)argument + 100, 0);
    if (!is_busy) pthread_barrier_wait(&worked);
    pthread_barrier_wait(&ends);
    return NULL;
}

/* Without pages of files: a trim maps code of libc that was not used before. */
static long resident_bytes(void) {
    char text[8192];
    ssize_t length = 0, got;
    int file = open("/proc/self/smaps_rollup", O_RDONLY);
    while ((got = read(file, text + length, sizeof text - 1 - length)) > 0) length += got;
    close(file);
    text[length] = 0;
    char *field = strstr(text, "\nAnonymous:");
    return field ? atol(field + 11) * 1024 : -1;
}

static char *kept[2];

static void divide(void) {
    for (int i = 0; i < 2; i++) {
        kept[i] = malloc(i ? 40 << 20 : 1000);
        memset(kept[i], 0x66, 1000);
    }
    /* The page half-way from the block to the end of the heap. */
    char *page = (char *)(((uintptr_t)sbrk(0) >> 13 << 12) + ((uintptr_t)kept[0] >> 13 << 12));
    madvise(page, 4096, MADV_DONTFORK);
    page = (char *)(((uintptr_t)kept[1] & ~4095ul) + (1 << 20));
    madvise(page, 4096, MADV_DONTFORK);
    mprotect(page + (1 << 20), 4096, PROT_READ);
}

static void wall(void) {
    void *place = (void *)(((uintptr_t)sbrk(0) + (1 << 20)) & ~4095ul);
    if (mmap(place, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != place) exit(3);
}

static void obey(const char *line) {
    if (strcmp(line, "info") == 0) malloc_info(0, stdout);
    if (strcmp(line, "trim") == 0) {
        long before = resident_bytes();
        malloc_trim(0);
        printf("trimmed %ld\n", before - resident_bytes());
    }
    if (strcmp(line, "divide") == 0) divide();
    printf("done\n");
    fflush(stdout);
}

int main(int argc, char **argv) {
    if (argc < 6) return 2;
    threads = atoi(argv[1]);
    blocks = atoi(argv[2]);
    largest = atoi(argv[3]);
    keep_percent = atoi(argv[4]);
    uses_sbrk = argc > 6 && strcmp(argv[6], "sbrk") == 0;
    is_busy = argc > 6 && strcmp(argv[6], "busy") == 0;
    if (argc > 6 && strcmp(argv[6], "wall") == 0) wall();
    setvbuf(stdout, output, _IOFBF, sizeof output);
    pthread_barrier_init(&worked, NULL, threads + 1);
    pthread_barrier_init(&ends, NULL, threads + 1);
    pthread_t *ids = calloc(threads + 1, sizeof *ids);
    for (int i = 0; i < threads; i++) pthread_create(&ids[i], NULL, body, (void *)(uintptr_t)i);
    work(atoi(argv[5]), 1);
    pthread_barrier_wait(&worked);
    printf("ready %d\n", getpid());
    fflush(stdout);
    char line[64];
    int length = 0;
    while (read(0, line + length, 1) == 1) {
        if (line[length] != '\n') {
            length += length < (int)sizeof line - 2;
            continue;
        }
        line[length] = 0;
        length = 0;
        if (strcmp(line, "quit") == 0) break;
        obey(line);
    }
    is_over = 1;
    pthread_barrier_wait(&ends);
    for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
    return 0;
}
