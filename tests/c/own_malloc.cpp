// A program has a malloc of its own, as some embed an allocator; operator new and delete follow it, and C23's free_sized, as in glibc
// (2.43).
#include "check.h"
#include <algorithm>
#include <dlfcn.h>
#include <new>
#include <string>
#include <vector>

alignas(16) static char arena[64 << 20];
static size_t used, frees;

extern "C" void *malloc(size_t bytes) {
    used += 16;
    *(size_t *)(arena + used - 16) = bytes;
    void *block = arena + used;
    used += (bytes + 15) & ~(size_t)15;
    return used <= sizeof arena ? block : nullptr;
}
extern "C" void free(void *block) {
    CHECK(block == nullptr || ((char *)block >= arena && (char *)block < arena + sizeof arena), "free of a block that is not ours");
    frees += block != nullptr;
}
extern "C" void *calloc(size_t count, size_t bytes) {
    void *block = malloc(count * bytes);
    return block ? memset(block, 0, count * bytes) : block;
}
extern "C" void *realloc(void *old, size_t bytes) {
    void *block = malloc(bytes);
    size_t had = old ? *(size_t *)((char *)old - 16) : 0;
    if (block && old) memcpy(block, old, had < bytes ? had : bytes);
    return block;
}
extern "C" void *aligned_alloc(size_t align, size_t bytes) {
    char *block = (char *)malloc(bytes + align);
    return block + (-(uintptr_t)block & (align - 1));
}

static bool is_in_arena(void *block) { return (char *)block >= arena && (char *)block < arena + sizeof arena; }

int main() {
    {
        std::vector<std::string> words;
        for (int i = 0; i < 10000; i++) words.push_back(std::string(i % 100, 'a'));
    }
    CHECK(frees > 8000, "free was called %zu times", frees);
    for (int i = 0; i < 2; i++) {
        auto align = std::align_val_t(128);
        void *one = i ? ::operator new(100, std::nothrow) : ::operator new[](100, std::nothrow);
        void *wide = i ? ::operator new(100, align, std::nothrow) : ::operator new[](100, align, std::nothrow);
        CHECK(is_in_arena(one) && is_in_arena(wide), "new without exceptions has another malloc");
        ::operator delete(one), ::operator delete(wide, align);
    }
    std::vector<int> numbers(1000);
    for (int i = 0; i < 1000; i++) numbers[i] = i * 7919 % 1000;
    std::stable_sort(numbers.begin(), numbers.end()); // its buffer comes from new without exceptions
    CHECK(numbers[999] == 999, "not sorted");
    auto sized = (void (*)(void *, size_t))dlsym(RTLD_DEFAULT, "free_sized");
    auto aligned = (void (*)(void *, size_t, size_t))dlsym(RTLD_DEFAULT, "free_aligned_sized");
    if (sized && aligned) {
        size_t before = frees;
        sized(malloc(100), 100), aligned(malloc(100), 16, 100), sized(nullptr, 100);
        CHECK(frees == before + 2, "free_sized called free %zu times", frees - before);
    }
    return 0;
}
