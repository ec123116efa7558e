/* malloc_stats writes something on stderr, nothing on stdout, and closes neither. With "whole" in one piece each time, or what several
 * processes write to one pipe would mix. */
#include "check.h"

static size_t drain(int file, char *text, size_t room, int *pieces) {
    size_t used = 0;
    *pieces = 0;
    for (ssize_t got; (got = read(file, text + used, room - 1 - used)) > 0; ++*pieces) used += got;
    text[used] = 0;
    return used;
}

int main(int argc, char **argv) {
    int out[2], err[2], pieces;
    CHECK(pipe(out) == 0 && pipe2(err, O_DIRECT) == 0, "no pipes"); // a pipe that keeps pieces apart
    pid_t child = fork();
    if (child == 0) {
        dup2(out[1], 1), dup2(err[1], 2);
        close(out[0]), close(err[0]), close(out[1]), close(err[1]);
        static void *block[1000];
        for (size_t i = 0; i < COUNT_OF(block); i++) block[i] = malloc(i * 10);
        malloc_stats();
        for (size_t i = 0; i < COUNT_OF(block); i++) free(block[i]);
        malloc_stats();
        _exit(fcntl(1, F_GETFD) < 0 || fcntl(2, F_GETFD) < 0);
    }
    close(out[1]), close(err[1]);
    static char text[65536];
    size_t printed = drain(err[0], text, sizeof text, &pieces);
    CHECK(printed > 10 && memchr(text, '\n', printed), "malloc_stats wrote %zu bytes on stderr", printed);
    CHECK(strpbrk(text, "0123456789") != NULL, "malloc_stats wrote no number");
    CHECK(argc == 1 || pieces == 2, "malloc_stats wrote twice, in %d pieces", pieces);
    printed = drain(out[0], text, sizeof text, &pieces);
    CHECK(printed == 0, "malloc_stats wrote %zu bytes on stdout", printed);
    expect_success(child, "malloc_stats");
    return 0;
}
