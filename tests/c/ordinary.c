/* An ordinary program that forks once, prints one line on stdout and exits with 7. */
#include "check.h"

int main(void) {
    static void *block[1000];
    for (size_t i = 0; i < COUNT_OF(block); i++) block[i] = malloc(i * 30);
    for (size_t i = 0; i < COUNT_OF(block); i++) free(block[i]);
    pid_t pid = fork();
    if (pid == 0) {
        free(malloc(10));
        _exit(0);
    }
    expect_success(pid, "fork");
    puts("ordinary");
    return 7;
}
