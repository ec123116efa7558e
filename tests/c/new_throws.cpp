// operator new of an impossible size throws std::bad_alloc, through frames whose destructors run.
#include "check.h"
#include <new>
#include <string>
#include <thread>
#include <vector>

static thread_local int unwound;
struct Frame {
    std::string text = "a string long enough to be allocated, one for each frame";
    ~Frame() { unwound++; }
};

enum Form { New, Array, Aligned, AlignedArray, OverAligned, FORMS };
static size_t impossible = (size_t)PTRDIFF_MAX - 100;

static void *deep(Form form, int depth) {
    Frame frame;
    if (depth > 0) {
        void *p = deep(form, depth - 1);
        CHECK(p == nullptr, "impossible sizes are given out");
        return p;
    }
    size_t n = opaque_size(impossible);
    switch (form) {
    case New: return opaque(::operator new(n));
    case Array: return opaque(::operator new[](n));
    case Aligned: return opaque(::operator new(n, std::align_val_t(64)));
    case AlignedArray: return opaque(::operator new[](n, std::align_val_t(64)));
    default: return opaque(::operator new(n, std::align_val_t(64 * MIB)));
    }
}

static void rounds(int count) {
    for (int i = 0; i < count; i++)
        for (int form = 0; form < FORMS; form++) {
            int depth = i % 20;
            unwound = 0;
            bool caught = false;
            try {
                deep((Form)form, depth);
            } catch (const std::bad_alloc &error) {
                caught = error.what() != nullptr;
            }
            CHECK(caught, "form %d of operator new did not throw std::bad_alloc", form);
            CHECK(unwound == depth + 1, "form %d: %d of %d destructors ran", form, unwound, depth + 1);
            void *p = ::operator new(100 + i);
            memset(p, 1, 100 + i);
            ::operator delete(p);
        }
}

int main() {
    rounds(200);
    size_t n = opaque_size(impossible);
    const auto v = std::align_val_t(256);
    CHECK(::operator new(n, std::nothrow) == nullptr, "nothrow new of an impossible size is not null");
    CHECK(::operator new[](n, std::nothrow) == nullptr, "nothrow new[] of an impossible size is not null");
    CHECK(::operator new(n, v, std::nothrow) == nullptr, "aligned nothrow new of an impossible size is not null");
    CHECK(::operator new[](n, v, std::nothrow) == nullptr, "aligned nothrow new[] of an impossible size is not null");
    // libstdc++ 12 rounds such a size up to 0 when it is aligned, and gives a block of no bytes.
    if (preloaded()) {
        impossible = SIZE_MAX - 8;
        rounds(20);
    }
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++) threads.emplace_back(rounds, 100);
    for (auto &thread : threads) thread.join();
    try {
        std::vector<char> big;
        big.reserve(opaque_size((size_t)PTRDIFF_MAX - 1));
        CHECK(false, "a vector of PTRDIFF_MAX - 1 bytes exists");
    } catch (const std::bad_alloc &) {
    }
    return 0;
}
