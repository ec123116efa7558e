// Destructors of thread_local objects allocate and free, whether they run before or after the allocator's own cleanup.
#include "check.h"
#include <map>
#include <memory>
#include <pthread.h>
#include <string>
#include <thread>
#include <vector>

static std::string long_text(int i) { return "a text that is long enough to be on the heap, number " + std::to_string(i); }

struct Log {
    std::vector<std::string> lines;
    explicit Log(int count) {
        for (int i = 0; i < count; i++) lines.push_back(long_text(i));
    }
    ~Log() {
        for (size_t i = 0; i < lines.size(); i++) CHECK(lines[i] == long_text(i), "line %zu of a thread's log changed", i);
        std::map<int, std::string> copy;
        for (size_t i = 0; i < lines.size(); i++) copy[i] = lines[i] + " again";
        std::unique_ptr<char[]> big(new char[100000]);
        memset(big.get(), 1, 100000);
    }
};

// Constructed before the thread's first malloc (it allocates nothing itself): destroyed after all others.
struct Quiet {
    unsigned char *block = nullptr;
    ~Quiet() {
        free(block);
        for (int i = 0; i < 300; i++) ::operator delete(::operator new(i * 30));
    }
};
static thread_local Quiet quiet;
static thread_local Log early(20);
static thread_local Log late(200);

static pthread_key_t key;
static void key_destructor(void *value) {
    free(value);
    for (int i = 0; i < 100; i++) free(malloc(i * 100));
}

static void work(bool reversed) {
    if (!reversed) opaque(&quiet);
    if (reversed) CHECK(late.lines.size() == 200, "late");
    quiet.block = (unsigned char *)malloc(3000);
    pthread_setspecific(key, malloc(5000));
    CHECK(early.lines.size() == 20, "early");
    CHECK(late.lines.size() == 200, "late");
}

int main() {
    CHECK(pthread_key_create(&key, key_destructor) == 0, "no key");
    size_t start = 0;
    for (int i = 0; i < 400; i++) {
        std::thread first(work, false), second(work, true);
        first.join(), second.join();
        if (i == 100) start = kept_bytes();
    }
    CHECK(kept_bytes() < start + MIB, "600 threads left %zu KiB", (kept_bytes() - start) / KIB);
    for (int i = 0; i < 10; i++) std::thread(work, i % 2).detach();
    work(true);
    return 0; // the main thread's own, while detached threads may still run
}
