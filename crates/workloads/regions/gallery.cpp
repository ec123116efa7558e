/*
 * gallery: a loader fills a gallery, then many searchers look through it, each request with scratch buffers of its own.
 *
 *   gallery KEY=VALUE...
 *     data=vector            std::vector in pieces, as malloc gives them
 *     data=region            one region; library=PATH shared=0|1 pages=0|1|2 populate=0|1|2 as in faultless.h
 *     mebibytes=N            of the gallery (default 1024)
 *     searchers=N            threads (96)
 *     requests=N             of each searcher in each stage (4)
 *     scratch=BYTES buffers=N   of one request: so many buffers of so many bytes, written whole and freed at its end; 0: none
 *     arrival=burst|ramp     all searchers at once; or first 10, 20, 40, 60, 80 of them, each for as many requests, then all
 *     threads=early|late     searchers exist before the data is loaded, or are started by the first request
 *
 * Page faults are counted by the kernel for each thread and told apart by what the thread did: starting, reading the gallery, using
 * scratch buffers. Figures are of the last stage, in which all searchers take part; `before_faults` are of the stages before it.
 * Prints one line of key=value. Exit status 77: the machine has no pool of huge pages.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "library.h"
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <time.h>
#include <vector>

namespace {

const std::size_t page_bytes = 4096;
const std::size_t piece_bytes = std::size_t(64) << 20;

double now_s() {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

struct usage {
    long faults;
    double user_s, system_s;
};

usage usage_of(int who) {
    struct rusage use;
    getrusage(who, &use);
    return {use.ru_minflt, use.ru_utime.tv_sec + use.ru_utime.tv_usec * 1e-6,
            use.ru_stime.tv_sec + use.ru_stime.tv_usec * 1e-6};
}

long thread_faults() { return usage_of(RUSAGE_THREAD).faults; }

struct settings {
    std::map<std::string, std::string> values;
    std::string text(const std::string &key, const std::string &usual) const {
        const auto found = values.find(key);
        return found == values.end() ? usual : found->second;
    }
    std::size_t number(const std::string &key, std::size_t usual) const {
        return std::stoull(text(key, std::to_string(usual)));
    }
};

// The gallery: pieces of memory, whoever they come from.
struct gallery {
    std::vector<std::vector<char>> vectors;
    std::vector<char *> pieces;
    std::size_t last_bytes = 0;
};

// What all searchers share.
struct stage {
    std::mutex mutex;
    std::condition_variable changed;
    unsigned number = 0;    // which stage is on
    unsigned admitted = 0;  // so many searchers take part
    unsigned running = 0;   // have not finished it
    bool is_over = false;
};

// What one searcher saw in the last stage.
struct tally {
    long start_faults = 0, data_faults = 0, scratch_faults = 0;
    std::vector<double> latencies_s;
    unsigned sum = 0;
};

struct request_shape {
    std::size_t scratch_bytes, buffers;
};

__attribute__((noinline)) void search(const gallery &data, unsigned searcher, const request_shape &shape, tally &seen) {
    const double begin = now_s();
    const long at_first = thread_faults();
    std::vector<char *> scratch(shape.buffers);
    for (char *&buffer : scratch) {
        buffer = static_cast<char *>(malloc(shape.scratch_bytes));
        memset(buffer, 1, shape.scratch_bytes);
    }
    const long at_data = thread_faults();
    // One cache line of each page, beginning elsewhere in each thread: every page is used, bandwidth is not the limit.
    const std::size_t count = data.pieces.size();
    for (std::size_t step = 0; step < count; step++) {
        const char *piece = data.pieces[(step + searcher) % count];
        for (std::size_t at = (searcher % 64) * 64; at < piece_bytes; at += page_bytes) {
            seen.sum += static_cast<unsigned char>(piece[at]);
        }
    }
    const long after_data = thread_faults();
    for (char *buffer : scratch) free(buffer);
    scratch = std::vector<char *>();
    seen.data_faults += after_data - at_data;
    seen.scratch_faults += at_data - at_first + (thread_faults() - after_data);
    seen.latencies_s.push_back(now_s() - begin);
}

void searcher(unsigned index, const gallery &data, const request_shape &shape, std::size_t requests, stage &on, tally &seen,
              bool is_late) {
    unsigned done = 0;
    bool is_new = true;
    std::unique_lock<std::mutex> lock(on.mutex);
    while (true) {
        on.changed.wait(lock, [&] { return on.is_over || (on.number != done && index < on.admitted); });
        if (on.is_over) return;
        done = on.number;
        lock.unlock();
        seen = tally();
        seen.latencies_s.reserve(requests);
        // A thread that has just come has faulted in its stack and its own memory.
        if (is_new && is_late) seen.start_faults = thread_faults();
        is_new = false;
        for (std::size_t request = 0; request < requests; request++) search(data, index, shape, seen);
        lock.lock();
        if (--on.running == 0) on.changed.notify_all();
    }
}

void run_stage(stage &on, unsigned searchers) {
    std::unique_lock<std::mutex> lock(on.mutex);
    on.number++;
    on.admitted = searchers;
    on.running = searchers;
    on.changed.notify_all();
    on.changed.wait(lock, [&] { return on.running == 0; });
}

// Fills the gallery as a loader does that reads files: front to back, each byte once.
void load(gallery &data) {
    unsigned state = 1;
    for (char *piece : data.pieces) {
        for (std::size_t at = 0; at < piece_bytes; at += 64) {
            state = state * 1664525 + 1013904223;
            memset(piece + at, static_cast<int>(state >> 24), 64);
        }
    }
}

} // namespace

int main(int count, char **arguments) {
    settings given;
    for (int i = 1; i < count; i++) {
        const std::string word = arguments[i];
        const std::size_t equals = word.find('=');
        if (equals == std::string::npos) {
            fprintf(stderr, "expected KEY=VALUE, not %s\n", arguments[i]);
            return 2;
        }
        given.values[word.substr(0, equals)] = word.substr(equals + 1);
    }
    const unsigned searchers = static_cast<unsigned>(given.number("searchers", 96));
    const std::size_t requests = given.number("requests", 4);
    const std::size_t pieces = std::max<std::size_t>(1, (given.number("mebibytes", 1024) << 20) / piece_bytes);
    const request_shape shape = {given.number("scratch", 0), given.number("scratch", 0) ? given.number("buffers", 8) : 0};
    const bool is_late = given.text("threads", "early") == "late";
    const bool is_ramp = given.text("arrival", "burst") == "ramp";

    gallery data;
    stage on;
    std::vector<tally> seen(searchers);
    std::vector<std::thread> pool;
    const auto start_pool = [&] {
        for (unsigned index = 0; index < searchers; index++) {
            pool.emplace_back(searcher, index, std::cref(data), std::cref(shape), requests, std::ref(on), std::ref(seen[index]),
                              is_late);
        }
    };
    if (!is_late) start_pool();

    const double load_begin = now_s();
    const usage before_load = usage_of(RUSAGE_SELF);
    struct regions regions;
    fl_region *region = nullptr;
    fl_region_pages pages = fl_region_pages();
    if (given.text("data", "vector") == "region") {
        regions = load_regions(given.text("library", "libfaultless.so").c_str());
        fl_region_options options = fl_region_options();
        options.bytes = pieces * piece_bytes;
        options.shared = static_cast<int>(given.number("shared", 0));
        options.pages = static_cast<int>(given.number("pages", 0));
        options.populate = static_cast<int>(given.number("populate", 0));
        region = mapped_or_exit(&regions, &options);
        for (std::size_t piece = 0; piece < pieces; piece++) {
            data.pieces.push_back(static_cast<char *>(regions.data(region)) + piece * piece_bytes);
        }
    } else {
        data.vectors.resize(pieces);
        for (auto &vector : data.vectors) {
            vector.resize(piece_bytes);
            data.pieces.push_back(vector.data());
        }
    }
    std::thread([&] { load(data); }).join();
    if (region) {
        regions.freeze(region, nullptr);
        regions.look(region, &pages);
    }
    const usage after_load = usage_of(RUSAGE_SELF);
    const double load_s = now_s() - load_begin;

    const usage before_stages = usage_of(RUSAGE_SELF);
    if (is_late) start_pool();
    if (is_ramp) {
        for (unsigned admitted : {10u, 20u, 40u, 60u, 80u}) {
            if (admitted < searchers) run_stage(on, admitted);
        }
    }
    const usage before = is_ramp ? usage_of(RUSAGE_SELF) : before_stages;
    const double begin = now_s();
    run_stage(on, searchers);
    const double elapsed_s = now_s() - begin;
    const usage after = usage_of(RUSAGE_SELF);

    tally sum;
    for (const tally &one : seen) {
        sum.start_faults += one.start_faults;
        sum.data_faults += one.data_faults;
        sum.scratch_faults += one.scratch_faults;
        sum.sum += one.sum;
        sum.latencies_s.insert(sum.latencies_s.end(), one.latencies_s.begin(), one.latencies_s.end());
    }
    {
        std::lock_guard<std::mutex> lock(on.mutex);
        on.is_over = true;
        on.changed.notify_all();
    }
    for (std::thread &thread : pool) thread.join();
    std::sort(sum.latencies_s.begin(), sum.latencies_s.end());
    const std::size_t samples = sum.latencies_s.size();
    const long faults = after.faults - before.faults;
    printf("requests=%zu elapsed_s=%.4f user_s=%.4f system_s=%.4f median_s=%.4f worst_s=%.4f faults=%ld start_faults=%ld "
           "data_faults=%ld scratch_faults=%ld other_faults=%ld before_faults=%ld load_s=%.4f load_faults=%ld "
           "huge_bytes=%zu sum=%u\n",
           samples, elapsed_s, after.user_s - before.user_s, after.system_s - before.system_s, sum.latencies_s[samples / 2],
           sum.latencies_s[samples - 1], faults, sum.start_faults, sum.data_faults, sum.scratch_faults,
           faults - sum.start_faults - sum.data_faults - sum.scratch_faults, before.faults - before_stages.faults, load_s,
           after_load.faults - before_load.faults, pages.huge_bytes, sum.sum);
    if (region) regions.unmap(region);
    return 0;
}
