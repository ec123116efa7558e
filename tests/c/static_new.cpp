// A C++ program that is linked with all of its libraries: what fails is null, or thrown and caught.
#include "check.h"
#include <new>

static int handled;
static void handle() {
    if (++handled == 3) std::set_new_handler(nullptr);
}

int main() {
    size_t impossible = opaque_size((size_t)1 << 62);
    CHECK(opaque(::operator new(impossible, std::nothrow)) == nullptr, "nothrow new of an impossible size is not null");
    std::set_new_handler(handle);
    bool is_caught = false;
    try {
        opaque(::operator new(impossible));
    } catch (const std::bad_alloc &) {
        is_caught = true;
    }
    CHECK(is_caught && handled == 3, "the handler was called %d times, caught: %d", handled, is_caught);
    delete[] (char *)opaque(new char[1000]);
    return 0;
}
