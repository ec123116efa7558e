// A program replaces the plain operator new and delete; every other form then leads to these, as the C++ standard says.
#include "check.h"
#include <new>
#include <string>
#include <vector>

static size_t live, calls;

// 16 bytes before the block, so that a block which goes elsewhere is told.
void *operator new(size_t bytes) {
    calls++, live++;
    if (bytes > GIB) throw std::bad_alloc();
    char *block = (char *)malloc(bytes + 16);
    memset(block, 0x5a, 16);
    return block + 16;
}
void operator delete(void *pointer) noexcept {
    if (pointer == nullptr) return;
    char *block = (char *)pointer - 16;
    for (int i = 0; i < 16; i++) CHECK(block[i] == 0x5a, "a block of another operator new is deleted");
    calls++, live--;
    free(block);
}

struct Some {
    char bytes[40];
};

int main() {
    size_t before = live;
    delete (Some *)opaque(new Some);
    delete[] (Some *)opaque(new Some[7]);
    delete (Some *)opaque(new (std::nothrow) Some);
    delete[] (Some *)opaque(new (std::nothrow) Some[7]);
    ::operator delete(opaque(::operator new(100)), (size_t)100);
    ::operator delete[](opaque(::operator new[](100)), (size_t)100);
    ::operator delete(opaque(::operator new(100)), std::nothrow);
    ::operator delete[](opaque(::operator new[](100)), std::nothrow);
    CHECK(calls >= 16 && live == before, "of 16 calls %zu came, %zu blocks are left", calls, live - before);
    CHECK(opaque(::operator new(opaque_size(2 * GIB), std::nothrow)) == nullptr, "what new throws, nothrow new does not catch");
    std::vector<std::string> words;
    for (int i = 0; i < 10000; i++) words.push_back(std::string(i % 100, 'a'));
    words.clear();
    return 0;
}
