// A C++ program built with the installed header, the library inside: operator new throws through it.
#include "check.h"
#include <faultless.h>
#include <new>
#include <vector>

int main() {
    std::vector<int> numbers(100000, 3);
    CHECK(numbers[99999] == 3 && faultless_version()[0] != 0, "a vector");
    bool caught = false;
    try {
        opaque(::operator new(opaque_size(SIZE_MAX / 4)));
    } catch (const std::bad_alloc &) {
        caught = true;
    }
    CHECK(caught, "an impossible size did not throw");
    return 0;
}
