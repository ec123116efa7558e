/* What every test program uses: a failure is one line on stderr and exit status 1.
 * Nothing here allocates, so that it works inside constructors, forked children and under exhausted memory. */
#ifndef CHECK_H
#define CHECK_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)
#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

__attribute__((format(printf, 3, 4), noreturn)) static inline void fail(const char *file, int line,
                                                                        const char *format, ...) {
    char text[512];
    const char *slash = strrchr(file, '/');
    int used = snprintf(text, sizeof text, "%s:%d: ", slash ? slash + 1 : file, line);
    va_list arguments;
    va_start(arguments, format);
    used += vsnprintf(text + used, sizeof text - used - 1, format, arguments);
    va_end(arguments);
    if (used > (int)sizeof text - 2) used = sizeof text - 2;
    text[used++] = '\n';
    ssize_t ignored = write(2, text, used);
    (void)ignored;
    _exit(1);
}

/* CHECK(condition, format, ...): the text says what was expected and what was seen. */
#define CHECK(condition, ...)                                \
    do {                                                     \
        if (!(condition)) fail(__FILE__, __LINE__, __VA_ARGS__); \
    } while (0)

/* Is a library preloaded? False while the tests themselves are validated against libc. */
static inline bool preloaded(void) { return getenv("LD_PRELOAD") != NULL; }

/* Says what cannot be tested on this machine; the harness takes such lines for what was skipped. */
static inline void say_skipped(const char *reason) {
    char line[128];
    int length = snprintf(line, sizeof line, "skipped: %s\n", reason);
    ssize_t ignored = write(1, line, length);
    (void)ignored;
}

/* Keeps the compiler from knowing where a pointer came from or what a size is. */
static inline void *opaque(const void *pointer) {
    __asm__ volatile("" : "+r"(pointer) : : "memory");
    return (void *)(uintptr_t)pointer;
}
static inline size_t opaque_size(size_t size) {
    __asm__ volatile("" : "+r"(size));
    return size;
}

/* Reads a file that fits as a string. */
static inline void read_text(const char *path, char *text, size_t room) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0, "cannot open %s: errno %d", path, errno);
    size_t used = 0;
    for (ssize_t got; (got = read(file, text + used, room - 1 - used)) > 0;) used += got;
    close(file);
    text[used] = 0;
}

/* Size of the address space in pages. */
static inline long addresses(void) {
    char text[256];
    read_text("/proc/self/statm", text, sizeof text);
    return strtol(text, NULL, 10);
}

/* Whether a line of smaps has a flag, given with the blank before it. */
static inline bool line_has(const char *line, const char *flag) {
    const char *found = strstr(line, flag);
    return found != NULL && found < strchr(line, '\n');
}

/* What a file in /proc says in KiB behind a word, which ends in a colon. */
static inline size_t stated_bytes(const char *file, const char *word) {
    static __thread char text[4096];
    read_text(file, text, sizeof text);
    const char *found = strstr(text, word);
    CHECK(found != NULL, "%s has no %s", file, word);
    return strtoull(found + strlen(word), NULL, 10) * KIB;
}

/* Resident bytes, from smaps_rollup, which counts pages where statm may lag. */
static inline size_t rss_bytes(void) { return stated_bytes("/proc/self/smaps_rollup", "\nRss:"); }

/* The same when all that may be given back was: what has grown then is lost. */
static inline size_t kept_bytes(void) {
    malloc_trim(0);
    return rss_bytes();
}

/* xorshift64*: the state must not be zero. */
static inline uint64_t next_random(uint64_t *state) {
    uint64_t x = *state;
    x ^= x >> 12, x ^= x << 25, x ^= x >> 27;
    *state = x;
    return x * 0x2545F4914F6CDD1Dull;
}

/* A size from `least` to `most`, each power of two as likely as the next. */
static inline size_t random_size(uint64_t *state, size_t least, size_t most) {
    int low = 63 - __builtin_clzll(least), high = 63 - __builtin_clzll(most);
    size_t base = (size_t)1 << (low + next_random(state) % (high - low + 1));
    size_t size = base + next_random(state) % base;
    return size < least ? least : size > most ? most : size;
}

/* A pattern that depends on the seed and the offset, so that neither moved nor exchanged bytes pass. */
static inline unsigned char pattern_byte(uint64_t seed, size_t offset) {
    return (unsigned char)((seed * 0x9E3779B97F4A7C15ull >> 32) + offset * 167 + (offset >> 8) * 13);
}
static inline void fill_range(void *block, size_t from, size_t to, uint64_t seed) {
    unsigned char *bytes = (unsigned char *)block;
    for (size_t at = from; at < to; at++) bytes[at] = pattern_byte(seed, at);
}
static inline size_t first_bad_in(const void *block, size_t from, size_t to, uint64_t seed) {
    const unsigned char *bytes = (const unsigned char *)block;
    for (size_t at = from; at < to; at++)
        if (bytes[at] != pattern_byte(seed, at)) return at;
    return SIZE_MAX;
}

/* Blocks up to 16 KiB are filled whole; of greater ones both ends and 16 bytes in each page. */
#define WHOLE_UP_TO ((size_t)16384)
static inline void fill(void *block, size_t size, uint64_t seed) {
    if (size <= WHOLE_UP_TO) {
        fill_range(block, 0, size, seed);
        return;
    }
    fill_range(block, 0, 256, seed);
    for (size_t at = 4096; at + 16 <= size; at += 4096) fill_range(block, at, at + 16, seed);
    fill_range(block, size - 256, size, seed);
}
/* Offset of the first wrong byte of the first `kept` bytes of a block filled at `size`, or SIZE_MAX. */
static inline size_t first_bad(const void *block, size_t size, size_t kept, uint64_t seed) {
    if (size <= WHOLE_UP_TO) return first_bad_in(block, 0, kept < size ? kept : size, seed);
    size_t bad = first_bad_in(block, 0, kept < 256 ? kept : 256, seed);
    for (size_t at = 4096; bad == SIZE_MAX && at + 16 <= kept; at += 4096)
        bad = first_bad_in(block, at, at + 16, seed);
    if (bad == SIZE_MAX && kept >= size) bad = first_bad_in(block, size - 256, size, seed);
    return bad;
}
#define CHECK_PATTERN(block, size, kept, seed)                                                          \
    do {                                                                                                \
        size_t bad_ = first_bad(block, size, kept, seed);                                               \
        CHECK(bad_ == SIZE_MAX, "byte %zu of a block of %zu at %p changed", bad_, (size_t)(size), (void *)(block)); \
    } while (0)

/* Offset of the first byte that is not zero, or SIZE_MAX. */
static inline size_t first_nonzero(const void *block, size_t size) {
    const unsigned char *bytes = (const unsigned char *)block;
    size_t at = 0;
    for (; at < size && (uintptr_t)(bytes + at) % 8; at++)
        if (bytes[at]) return at;
    for (; at + 8 <= size; at += 8)
        if (*(const uint64_t *)(bytes + at)) break;
    for (; at < size; at++)
        if (bytes[at]) return at;
    return SIZE_MAX;
}

/* Waits for a child; anything but exit status 0 is a failure of the caller. */
#include <sys/wait.h>
static inline void expect_success(pid_t child, const char *what) {
    int status;
    CHECK(child > 0, "%s: fork failed, errno %d", what, errno);
    while (waitpid(child, &status, 0) < 0) CHECK(errno == EINTR, "%s: waitpid: errno %d", what, errno);
    CHECK(!WIFSIGNALED(status), "%s: the child died of signal %d%s", what, WTERMSIG(status),
          WTERMSIG(status) == 14 ? " (it hung)" : "");
    CHECK(WEXITSTATUS(status) == 0, "%s: the child exited with %d", what, WEXITSTATUS(status));
}
#endif
