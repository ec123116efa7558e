/* A process whose threads have all ended by pthread_exit ends, and at once, whatever threads of ours are there. libc runs the handlers of
 * exit in the last one: they have a stack and signals as in a thread of the program's. */
#include "check.h"
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

/* Of so many processes one must end within that time: the machine may be busy. */
enum { PROCESSES = 10, AT_ONCE_MS = 500 };

static bool has_worked;

static void *work(void *unused) {
    for (int i = 0; i < 4; i++) free(memset(malloc(3 * MIB), 1, 3 * MIB));
    __atomic_store_n(&has_worked, true, __ATOMIC_RELEASE);
    return unused;
}

__attribute__((noinline)) static void use_stack(int depth) {
    volatile char frame[64 * KIB];
    memset((void *)frame, depth, sizeof frame);
    if (depth > 0) use_stack(depth - 1);
    CHECK(frame[sizeof frame - 1] == (char)depth, "a frame changed");
}

static void at_exit(void) {
    sigset_t blocked;
    CHECK(pthread_sigmask(SIG_BLOCK, NULL, &blocked) == 0, "no signal mask");
    CHECK(!sigismember(&blocked, SIGTERM), "SIGTERM is blocked");
    CHECK(sigismember(&blocked, SIGUSR1), "SIGUSR1 is not blocked");
    use_stack(24);
    free(memset(malloc(MIB), 1, MIB));
    CHECK(write(1, "done", 4) == 4, "cannot write: errno %d", errno);
}

static long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* How long a process lives whose threads end. */
static long life_ms(const char *name) {
    int ends[2];
    CHECK(pipe(ends) == 0, "no pipe: errno %d", errno);
    long begun_ms = now_ms();
    pid_t child = fork();
    if (child == 0) {
        sigset_t blocked;
        sigemptyset(&blocked);
        sigaddset(&blocked, SIGUSR1);
        pthread_sigmask(SIG_SETMASK, &blocked, NULL);
        dup2(ends[1], 1);
        execl("/proc/self/exe", name, "child", NULL);
        _exit(2);
    }
    for (int i = 0; i < 15000; i++) {
        int status;
        pid_t ended = waitpid(child, &status, WNOHANG);
        CHECK(ended >= 0, "waitpid: errno %d", errno);
        if (ended == child) {
            CHECK(status == 0, "status %#x", status);
            char text[5] = "";
            CHECK(read(ends[0], text, 4) == 4 && strcmp(text, "done") == 0, "the handler of exit did not end");
            close(ends[0]), close(ends[1]);
            return now_ms() - begun_ms;
        }
        usleep(2000);
    }
    kill(child, SIGKILL);
    CHECK(0, "the process lives 30 s after its threads ended");
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1) {
        atexit(at_exit);
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, work, NULL) == 0, "no thread");
        pthread_detach(thread);
        while (!__atomic_load_n(&has_worked, __ATOMIC_ACQUIRE)) usleep(1000);
        pthread_exit(NULL);
    }
    long least_ms = LONG_MAX;
    for (int i = 0; i < PROCESSES && least_ms > AT_ONCE_MS; i++) {
        long took_ms = life_ms(argv[0]);
        if (took_ms < least_ms) least_ms = took_ms;
    }
    CHECK(least_ms <= AT_ONCE_MS, "of %d processes the first to end took %ld ms, of which %d are allowed", PROCESSES, least_ms, AT_ONCE_MS);
    return 0;
}
