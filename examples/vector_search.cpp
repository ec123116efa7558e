// A small vector search: a gallery of vectors in std::vector, in std::vector with regions under it, and in a region; searched by many
// threads. Prints what loading and searching took, in seconds and page faults.
//
//     vector_search [MEBIBYTES] [THREADS] [QUERIES]      (512, 8, 16)
#include <faultless.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sys/resource.h>
#include <thread>
#include <utility>
#include <vector>

namespace {

constexpr std::size_t dimensions = 128;

struct shape {
    std::size_t vectors, threads, queries;
};

long minor_faults() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

// Seconds and faults since it was made.
class meter {
  public:
    double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
    long faults() const { return minor_faults() - faults_; }

  private:
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    long faults_ = minor_faults();
};

// Numbers from -1 to 1, the same on every machine.
class numbers {
  public:
    explicit numbers(std::uint64_t seed) : state_(seed * 2 + 1) {}
    float next() {
        state_ ^= state_ >> 12, state_ ^= state_ << 25, state_ ^= state_ >> 27;
        return static_cast<float>(static_cast<std::int32_t>((state_ * 0x2545F4914F6CDD1DULL) >> 32)) / 2147483648.0f;
    }

  private:
    std::uint64_t state_;
};

void load(float *gallery, const shape &what) {
    numbers values(1);
    for (std::size_t at = 0; at < what.vectors * dimensions; at++) gallery[at] = values.next();
}

// The vector that is nearest to each query, by its number.
std::vector<std::size_t> search(const float *gallery, const shape &what) {
    std::vector<std::size_t> nearest(what.queries);
    std::vector<std::thread> threads;
    for (std::size_t thread = 0; thread < what.threads; thread++) {
        threads.emplace_back([&, thread] {
            for (std::size_t query = thread; query < what.queries; query += what.threads) {
                float wanted[dimensions];
                numbers values(query + 100);
                for (float &value : wanted) value = values.next();
                std::pair<float, std::size_t> best(-1e30f, 0);
                for (std::size_t vector = 0; vector < what.vectors; vector++) {
                    float product[8] = {};
                    for (std::size_t at = 0; at < dimensions; at += 8) {
                        for (std::size_t lane = 0; lane < 8; lane++) {
                            product[lane] += wanted[at + lane] * gallery[vector * dimensions + at + lane];
                        }
                    }
                    float sum = 0;
                    for (float part : product) sum += part;
                    if (sum > best.first) best = {sum, vector};
                }
                nearest[query] = best.second;
            }
        });
    }
    for (std::thread &thread : threads) thread.join();
    return nearest;
}

void report(const char *name, const meter &loading, const float *gallery, const shape &what) {
    const double load_s = loading.seconds();
    const long load_faults = loading.faults();
    const meter searching;
    const std::vector<std::size_t> nearest = search(gallery, what);
    const double search_s = searching.seconds();
    const long search_faults = searching.faults();
    std::size_t sum = 0;
    for (std::size_t vector : nearest) sum = sum * 31 + vector;
    std::printf("%-24s load %7.3f s %8ld faults   search %7.3f s %6ld faults   checksum %016zx\n", name, load_s, load_faults,
                search_s, search_faults, sum);
}

} // namespace

int main(int count, char **arguments) {
    const auto number = [&](int place, std::size_t usual) {
        return count > place ? std::max<std::size_t>(1, std::strtoull(arguments[place], nullptr, 10)) : usual;
    };
    const std::size_t bytes = number(1, 512) << 20;
    const shape what = {bytes / sizeof(float) / dimensions, number(2, 8), number(3, 16)};
    try {
        {
            const meter loading;
            std::vector<float> gallery(what.vectors * dimensions);
            load(gallery.data(), what);
            report("std::vector", loading, gallery.data(), what);
        }
        {
            using allocator = faultless::region_allocator<float>;
            const meter loading;
            std::vector<float, allocator> gallery(what.vectors * dimensions);
            load(gallery.data(), what);
            report("std::vector in a region", loading, gallery.data(), what);
        }
        {
            const meter loading;
            faultless::region gallery(faultless::region_options(bytes).shared(true).name("gallery"));
            load(gallery.as<float>(), what);
            gallery.freeze();
            report("region, shared", loading, gallery.as<float>(), what);
            const fl_region_pages pages = gallery.look();
            std::printf("  of %zu MiB resident %zu MiB are in huge pages\n", pages.resident_bytes >> 20, pages.huge_bytes >> 20);
        }
    } catch (const faultless::region_error &error) {
        std::fprintf(stderr, "vector_search: %s\n", error.what());
        return 1;
    }
    return 0;
}
