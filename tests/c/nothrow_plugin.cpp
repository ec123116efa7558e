// A library whose constructor waits for a thread that asks for memory without exceptions.
#include <cstdint>
#include <new>
#include <thread>

static void *volatile kept;

struct Start {
    Start() {
        std::thread asks([] { kept = ::operator new(40, std::nothrow); });
        asks.join();
    }
};
static Start start;

static int calls;
static void release() {
    calls++;
    std::set_new_handler(nullptr);
}

// Whether new without exceptions calls the handler when memory runs short.
extern "C" int calls_handler() {
    std::set_new_handler(release);
    void *volatile block = ::operator new(SIZE_MAX / 4, std::nothrow);
    return calls == 1 && block == nullptr;
}
