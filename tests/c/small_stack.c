/* A coroutine on a stack of 8 KiB uses memory up while parked threads hold full caches: what is gathered from them needs next to none of it. */
#include "check.h"
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <ucontext.h>

enum { THREADS = 12, HELD = 200, STACK_BYTES = 8 * KIB, GUARD_BYTES = 64 * KIB };
static ucontext_t outside, inside;
static pthread_barrier_t parked;
static size_t blocks;

static void *park(void *unused) {
    void *held[HELD];
    for (size_t i = 0; i < HELD; i++) held[i] = malloc(100 + i * 16);
    for (size_t i = 0; i < HELD; i++) free(held[i]);
    pthread_barrier_wait(&parked);
    pause();
    return unused;
}

static void use_up(void) {
    void **last = NULL, **block;
    for (; (block = opaque(malloc(1000))) != NULL; last = block, blocks++) *block = last;
    for (; last != NULL; last = block) block = *last, free(last);
    swapcontext(&inside, &outside);
}

int main(void) {
    pthread_barrier_init(&parked, NULL, THREADS + 1);
    pthread_t thread;
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&thread, NULL, park, NULL) == 0, "no thread");
    pthread_barrier_wait(&parked);
    char *stack = mmap(NULL, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(stack != MAP_FAILED && mprotect(stack, GUARD_BYTES, PROT_NONE) == 0, "no stack: errno %d", errno);
    struct rlimit limit = {200 * MIB, 200 * MIB};
    CHECK(setrlimit(RLIMIT_DATA, &limit) == 0, "setrlimit: errno %d", errno);
    getcontext(&inside);
    inside.uc_stack.ss_sp = stack + GUARD_BYTES;
    inside.uc_stack.ss_size = STACK_BYTES;
    makecontext(&inside, use_up, 0);
    swapcontext(&outside, &inside);
    CHECK(blocks > 10000, "only %zu blocks of 1,000 bytes under a limit of 200 MiB", blocks);
    _exit(0);
}
