/* fork while another thread, which holds the lock over stdio's streams, makes its first allocation. */
#include "check.h"
#include <pthread.h>

static bool is_writing;

static ssize_t allocate_late(void *unused, const char *bytes, size_t count) {
    (void)unused, (void)bytes;
    __atomic_store_n(&is_writing, true, __ATOMIC_RELEASE);
    usleep(200000);
    CHECK(opaque(malloc(100)) != NULL, "no memory");
    return (ssize_t)count;
}
static void *flush_all(void *unused) {
    fflush(NULL);
    return unused;
}

int main(void) {
    alarm(30);
    static char buffer[4096];
    FILE *stream = fopencookie(NULL, "w", (cookie_io_functions_t){.write = allocate_late});
    setvbuf(stream, buffer, _IOFBF, sizeof buffer);
    fputs("something to flush", stream);
    CHECK(opaque(malloc(MIB)) != NULL, "no memory");
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, flush_all, NULL) == 0, "no thread");
    while (!__atomic_load_n(&is_writing, __ATOMIC_ACQUIRE)) usleep(1000);
    pid_t child = fork();
    if (child == 0) _exit(0);
    expect_success(child, "fork beside a thread's first malloc");
    pthread_join(thread, NULL);
    return 0;
}
