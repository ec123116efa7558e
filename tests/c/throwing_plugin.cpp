// A library in C++, to be opened by a program that is none: operator new of an impossible size throws where it can be caught.
#include "check.h"
#include <new>

template <typename Allocate> static bool throws(Allocate allocate) {
    try {
        opaque(allocate(opaque_size((size_t)PTRDIFF_MAX - 100)));
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}

extern "C" int plugin_throws() {
    return throws([](size_t n) { return ::operator new(n); }) && throws([](size_t n) { return ::operator new[](n); }) &&
           throws([](size_t n) { return ::operator new(n, std::align_val_t(64)); });
}
