// A library in C++, to be opened beside another one that has a C++ library of its own: when memory runs short its own handler is called,
// and what is thrown is its own.
#include "check.h"
#include <exception>
#include <new>

static int calls;
static void note() {
    calls++;
    std::set_new_handler(nullptr);
}

template <typename Allocate> static void runs_short(Allocate allocate, bool is_to_throw) {
    calls = 0;
    std::set_new_handler(note);
    bool is_thrown = false;
    try {
        CHECK(opaque(allocate(opaque_size((size_t)PTRDIFF_MAX - 100))) == nullptr, "an impossible size");
    } catch (const std::bad_alloc &) {
        is_thrown = true;
    }
    CHECK(is_thrown == is_to_throw && calls == 1, "thrown %d, handler called %d times", is_thrown, calls);
    CHECK(std::uncaught_exceptions() == 0, "%d exceptions left", std::uncaught_exceptions());
}

extern "C" void allocates() {
    void *block = opaque(::operator new(40, std::nothrow));
    CHECK(block != nullptr, "no memory");
    ::operator delete(block);
    runs_short([](size_t bytes) { return ::operator new(bytes); }, true);
    runs_short([](size_t bytes) { return ::operator new[](bytes, std::align_val_t(64)); }, true);
    runs_short([](size_t bytes) { return ::operator new(bytes, std::nothrow); }, false);
    runs_short([](size_t bytes) { return ::operator new[](bytes, std::align_val_t(64), std::nothrow); }, false);
}
