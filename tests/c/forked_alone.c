/* Only one thread of a parent ever allocated. Its forked child has one thread, and stays so. */
#include "check.h"
#include <dirent.h>
#include <pthread.h>

static void *park(void *unused) {
    pause();
    return unused;
}

static int threads(void) {
    int count = 0;
    DIR *directory = opendir("/proc/self/task");
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) count += entry->d_name[0] != '.';
    closedir(directory);
    return count;
}

int main(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, park, NULL) == 0, "no thread");
    pid_t child = fork();
    if (child == 0) {
        for (int round = 1; round <= 50; round++) {
            void *blocks[100];
            for (size_t i = 0; i < COUNT_OF(blocks); i++) blocks[i] = malloc(100 * round);
            for (size_t i = 0; i < COUNT_OF(blocks); i++) free(blocks[i]);
        }
        int count = threads();
        CHECK(count == 1, "%d threads in a child that made none", count);
        _exit(0);
    }
    expect_success(child, "a child of one thread");
    return 0;
}
