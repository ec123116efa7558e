// The new-handler is called until memory is found, may free memory, may throw; run under a limit on memory.
#include "check.h"
#include <new>
#include <sys/resource.h>

static void *reserve[4096];
static size_t held, calls;

static void release_some() {
    calls++;
    if (held == 0) {
        std::set_new_handler(nullptr);
        return;
    }
    for (int i = 0; i < 8 && held > 0; i++) free(reserve[--held]);
}
struct Ours {
    size_t calls;
};
static void throw_ours() {
    if (++calls == 3) throw Ours{calls};
}
static void throw_bad_alloc() {
    calls++;
    throw std::bad_alloc();
}

int main() {
    size_t impossible = opaque_size((size_t)PTRDIFF_MAX - 100);
    // A handler that throws something of its own: it comes through; the handler was called each time.
    std::set_new_handler(throw_ours);
    for (int form = 0; form < 4; form++) {
        calls = 0;
        bool caught = false;
        try {
            switch (form) {
            case 0: opaque(::operator new(impossible)); break;
            case 1: opaque(::operator new[](impossible)); break;
            case 2: opaque(::operator new(impossible, std::align_val_t(128))); break;
            case 3: opaque(::operator new[](impossible, std::align_val_t(128))); break;
            }
        } catch (const Ours &seen) {
            caught = seen.calls == 3;
        }
        CHECK(caught && calls == 3, "form %d: the handler was called %zu times", form, calls);
    }
    // nothrow new asks the handler too, and turns its exception into null.
    std::set_new_handler(throw_bad_alloc);
    calls = 0;
    CHECK(::operator new(impossible, std::nothrow) == nullptr, "nothrow new returned a block");
    CHECK(::operator new[](impossible, std::nothrow) == nullptr, "nothrow new[] returned a block");
    CHECK(::operator new(impossible, std::align_val_t(128), std::nothrow) == nullptr, "aligned nothrow new returned a block");
    CHECK(calls == 3, "3 failures of nothrow new called the handler %zu times", calls);

    // Under a real limit: the handler frees from a reserve and the same new succeeds.
    struct rlimit limit;
    getrlimit(RLIMIT_AS, &limit);
    if (limit.rlim_cur == RLIM_INFINITY) return 0;
    const size_t size = MIB;
    while (held < COUNT_OF(reserve) && (reserve[held] = malloc(size)) != nullptr) held++;
    CHECK(held > 16 && held < COUNT_OF(reserve), "%zu MiB fit under the limit", held);
    calls = 0;
    std::set_new_handler(release_some);
    size_t at_first = held, got = 0;
    static void *blocks[8192];
    bool caught = false;
    try {
        for (; got < COUNT_OF(blocks); got++) {
            blocks[got] = ::operator new(size);
            *(volatile char *)blocks[got] = 1;
        }
    } catch (const std::bad_alloc &) {
        caught = true;
    }
    CHECK(caught, "operator new never failed");
    CHECK(held == 0 && calls > at_first / 8, "the handler was called %zu times and left %zu of %zu", calls, held, at_first);
    CHECK(got >= at_first * 9 / 10, "%zu MiB freed by the handler, only %zu found again", at_first, got);
    while (got > 0) ::operator delete(blocks[--got]);
    void *again = ::operator new(size);
    CHECK(again != nullptr, "no memory after all was freed");
    ::operator delete(again);
    return 0;
}
