/* fork while other threads open, close and flush streams: stdio's locks and the allocator's must be taken in one order. */
#include "check.h"
#include <pthread.h>

static bool stop;
static void *open_and_close(void *unused) {
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        FILE *f = fopen("/dev/null", "w");
        CHECK(f != NULL, "fopen: errno %d", errno);
        fprintf(f, "%d\n", 5);
        fclose(f);
    }
    return unused;
}
static void *flush_all(void *unused) {
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) fflush(NULL);
    return unused;
}
static void *memory_streams(void *unused) {
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        char *text = NULL;
        size_t size;
        FILE *f = open_memstream(&text, &size);
        for (int i = 0; i < 300; i++) fputs("some text that makes the stream grow ", f);
        fclose(f);
        free(text);
    }
    return unused;
}

int main(void) {
    alarm(100); /* the fork itself may be what hangs */
    pthread_t thread[6];
    void *(*work[6])(void *) = {open_and_close, flush_all, memory_streams, open_and_close, flush_all, memory_streams};
    for (int i = 0; i < 6; i++) CHECK(pthread_create(&thread[i], NULL, work[i], NULL) == 0, "no thread");
    for (int number = 0; number < 300; number++) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm(20);
            FILE *f = fopen("/dev/null", "w");
            CHECK(f != NULL, "fopen in the child: errno %d", errno);
            fprintf(f, "%d\n", number);
            fclose(f);
            for (int i = 0; i < 100; i++) free(malloc(i * 100));
            fflush(NULL);
            exit(0);
        }
        expect_success(pid, "fork while streams are opened and flushed");
    }
    stop = true;
    for (int i = 0; i < 6; i++) pthread_join(thread[i], NULL);
    return 0;
}
