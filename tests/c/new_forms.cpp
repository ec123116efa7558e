// Every form of operator new and delete, at many sizes and alignments.
#include "check.h"
#include <new>

static void use(void *p, size_t n, size_t alignment, const char *form) {
    CHECK(p != nullptr, "%s(%zu) returned null", form, n);
    CHECK((uintptr_t)p % alignment == 0, "%s(%zu): %p is not aligned to %zu", form, n, p, alignment);
    CHECK(malloc_usable_size(p) >= n, "%s(%zu): only %zu usable", form, n, malloc_usable_size(p));
    fill(p, n, n);
    CHECK_PATTERN(p, n, n, n);
}

static void plain(size_t n) {
    const size_t a = 16;
    void *p;
    use(p = ::operator new(n), n, a, "new"), ::operator delete(p);
    use(p = ::operator new(n), n, a, "new"), ::operator delete(p, n);
    use(p = ::operator new(n, std::nothrow), n, a, "new nothrow"), ::operator delete(p, std::nothrow);
    use(p = ::operator new[](n), n, a, "new[]"), ::operator delete[](p);
    use(p = ::operator new[](n), n, a, "new[]"), ::operator delete[](p, n);
    use(p = ::operator new[](n, std::nothrow), n, a, "new[] nothrow"), ::operator delete[](p, std::nothrow);
    // Memory of one family may be freed by free: libstdc++'s own definitions allow it, and programs rely on it.
    use(p = ::operator new(n), n, a, "new"), free(p);
    use(p = malloc(n), n, a, "malloc"), ::operator delete(p);
}

static void aligned(size_t n, size_t a) {
    const auto v = std::align_val_t(a);
    void *p;
    use(p = ::operator new(n, v), n, a, "new aligned"), ::operator delete(p, v);
    use(p = ::operator new(n, v), n, a, "new aligned"), ::operator delete(p, n, v);
    use(p = ::operator new(n, v, std::nothrow), n, a, "new aligned nothrow"), ::operator delete(p, v, std::nothrow);
    use(p = ::operator new[](n, v), n, a, "new[] aligned"), ::operator delete[](p, v);
    use(p = ::operator new[](n, v), n, a, "new[] aligned"), ::operator delete[](p, n, v);
    use(p = ::operator new[](n, v, std::nothrow), n, a, "new[] aligned nothrow"), ::operator delete[](p, v, std::nothrow);
}

struct alignas(128) Wide { char bytes[384]; };
struct Counted {
    static int live;
    int value = 7;
    Counted() { live++; }
    ~Counted() { live--; }
};
int Counted::live = 0;

int main() {
    void *first = ::operator new(opaque_size(0)), *second = ::operator new(opaque_size(0));
    CHECK(first && second && first != second, "operator new(0) returned %p and %p", first, second);
    ::operator delete(first), ::operator delete(second);
    ::operator delete(nullptr), ::operator delete[](nullptr), ::operator delete(nullptr, (size_t)8);
    ::operator delete(nullptr, std::align_val_t(64)), ::operator delete(nullptr, std::nothrow);

    for (size_t n = 0; n < 3 * MIB; n = n * 5 / 4 + 1) plain(n);
    for (size_t a = 1; a <= 4 * MIB; a *= 2)
        for (size_t n = 0; n < 500000; n = n * 3 + 1) aligned(n, a);

    for (int i = 1; i < 300; i++) {
        Wide *w = new Wide, *many = new Wide[i];
        CHECK((uintptr_t)w % 128 == 0 && (uintptr_t)many % 128 == 0, "over-aligned objects at %p, %p", w, many);
        Counted *c = new Counted[i];
        CHECK(Counted::live == i && c[i - 1].value == 7, "%d objects live of %d", Counted::live, i);
        delete[] c;
        CHECK(Counted::live == 0, "%d objects left", Counted::live);
        delete w;
        delete[] many;
    }
    return 0;
}
