// Regions from C++: RAII, exceptions, vectors and pmr containers in regions.
#include "check.h"
#include <faultless.hpp>
#include <numeric>
#include <sys/resource.h>
#include <vector>

static long minor_faults() {
    struct rusage usage;
    CHECK(getrusage(RUSAGE_THREAD, &usage) == 0, "getrusage: errno %d", errno);
    return usage.ru_minflt;
}

template <class Values> static long faults_of_a_search(const Values &values) {
    const long before = minor_faults();
    long sum = 0;
    for (std::size_t at = 0; at < values.size(); at += 64) sum += values[at];
    opaque(&sum);
    return minor_faults() - before;
}

static void regions_own_their_memory() {
    std::size_t told = 0;
    faultless::region_options options(4 * MIB);
    options.shared(true).name("gallery").threads(1).on_progress([&](std::size_t done, std::size_t total) {
        told = done;
        return done <= total;
    });
    faultless::region first(options);
    CHECK(told == 4 * MIB && first.size() == 4 * MIB && first.count<double>() == MIB / 2, "told %zu", told);
    first.as<double>()[9] = 2.5;
    faultless::region second(std::move(first));
    CHECK(first.handle() == nullptr && second.as<double>()[9] == 2.5, "moved");
    second.resize(8 * MIB);
    second.freeze();
    faultless::region opened = faultless::region::open(second.descriptor());
    CHECK(opened.size() == 8 * MIB && opened.as<double>()[9] == 2.5, "opened");
    first = std::move(second);
    CHECK(first.look().resident_bytes == 8 * MIB, "%zu resident", first.look().resident_bytes);
    faultless::region background(
        faultless::region_options(MIB).populate(faultless::populate::in_background).pages(faultless::pages::small));
    background.wait();
    CHECK(background.populated() == std::make_pair(MIB, MIB), "populated");
    faultless::region adopted = faultless::region::adopt(background.release());
    CHECK(adopted.size() == MIB && background.handle() == nullptr, "adopted");
}

static void failures_are_exceptions_that_speak() {
    bool caught = false;
    try {
        faultless::region impossible(std::size_t(1) << 46);
    } catch (const std::bad_alloc &error) {
        caught = strstr(error.what(), "the region needs") != nullptr;
    }
    CHECK(caught, "64 TiB were populated");
    caught = false;
    try {
        faultless::region(faultless::region_options(64 * MIB).threads(1).on_progress(
            [](std::size_t, std::size_t) { return false; }));
    } catch (const faultless::region_error &error) {
        caught = error.code() == FL_REGION_CANCELLED && error.needed_bytes() == 64 * MIB;
    }
    CHECK(caught, "not cancelled");
}

static void vectors_live_in_regions() {
    using allocator = faultless::region_allocator<int>;
    for (int shared = 0; shared < 2; shared++) {
        std::vector<int, allocator> numbers(allocator(faultless::region_options().shared(shared)));
        numbers.reserve(MIB);
        const long before = minor_faults();
        numbers.resize(MIB);
        std::iota(numbers.begin(), numbers.end(), 0);
        CHECK(minor_faults() - before <= 2, "loading into a populated vector took %ld faults", minor_faults() - before);
        CHECK(faults_of_a_search(numbers) == 0 && numbers[MIB - 1] == int(MIB - 1), "the search faults");
        std::vector<int, allocator> copy(numbers);
        copy.push_back(1); // grows
        CHECK(copy.size() == MIB + 1 && copy[77] == 77 && copy.back() == 1, "copied and grown");
        numbers.swap(copy);
        CHECK(numbers.size() == MIB + 1, "swapped");
    }
    std::vector<int, allocator> few{1, 2, 3}; // not a region
    CHECK(few[2] == 3 && few.get_allocator() == allocator(), "small vectors");
    std::vector<int, allocator> bounds;
    for (std::size_t count = 16300; count < 16500; count++) {
        std::vector<int, allocator>(count, 1).swap(bounds); // around the size from which on blocks are regions
        CHECK(bounds.back() == 1, "%zu", count);
    }
}

static void vectors_that_were_moved_from_are_filled_again() {
    using allocator = faultless::region_allocator<int>;
    std::vector<int, allocator> first(allocator(faultless::region_options().pages(faultless::pages::small)));
    first.assign(MIB, 1);
    std::vector<int, allocator> second(std::move(first)), third;
    first.assign(MIB, 2);
    third = std::move(second);
    second.assign(MIB, 3);
    CHECK(first.back() == 2 && second.back() == 3 && third.back() == 1, "%d %d %d", first.back(), second.back(), third.back());
}

template <class T> static bool is_aligned(const T *block, std::size_t align) {
    return reinterpret_cast<std::uintptr_t>(block) % align == 0;
}

// Without it C++ has no std::vector of such types.
#if defined(__cpp_aligned_new)
template <std::size_t align> struct alignas(align) Wide { char bytes[align]; };

template <std::size_t align> static void vectors_are_aligned_by(faultless::pages pages) {
    using allocator = faultless::region_allocator<Wide<align>>;
    std::vector<std::vector<Wide<align>, allocator>> vectors;
    for (std::size_t count = 1; count < 20; count++) {
        vectors.emplace_back(allocator(faultless::region_options().pages(pages)));
        vectors.back().resize(count);
        CHECK(is_aligned(vectors.back().data(), align), "%zu of %zu bytes: misaligned", count, align);
        memset(vectors.back().data(), 7, count * align);
    }
}

static void vectors_of_wide_values_are_aligned() {
    for (faultless::pages pages : {faultless::pages::huge_wanted, faultless::pages::small}) {
        vectors_are_aligned_by<4096>(pages);
        vectors_are_aligned_by<8192>(pages);
        vectors_are_aligned_by<65536>(pages);
    }
}
#else
static void vectors_of_wide_values_are_aligned() {}
#endif

#ifdef FAULTLESS_HAS_MEMORY_RESOURCE
#include <memory_resource>
#include <string>

static void pmr_containers_live_in_regions() {
    faultless::region_resource resource{faultless::region_options(16 * MIB)};
    {
        std::pmr::vector<std::pmr::string> names(&resource);
        names.reserve(1000);
        for (int i = 0; i < 1000; i++) names.emplace_back("a name that is too long to be kept inside of the string");
        CHECK(names[999].size() > 40 && resource.used_bytes() > 1000 * 50, "%zu used", resource.used_bytes());
        const char *data = static_cast<char *>(resource.memory().data());
        CHECK(names[500].data() > data && names[500].data() < data + resource.memory().size(), "elsewhere");
    }
    void *last = resource.allocate(100, 64);
    CHECK(reinterpret_cast<std::uintptr_t>(last) % 64 == 0, "misaligned");
    const std::size_t used = resource.used_bytes();
    resource.deallocate(resource.allocate(1000, 8), 1000, 8);
    CHECK(resource.used_bytes() <= used + 8, "the last block was not taken back");
    bool caught = false;
    try {
        opaque(resource.allocate(16 * MIB, 8));
    } catch (const std::bad_alloc &) {
        caught = true;
    }
    CHECK(caught, "a full region handed out more");
    faultless::region_resource with_upstream(faultless::region(4096), std::pmr::new_delete_resource());
    void *beyond = with_upstream.allocate(1 * MIB);
    with_upstream.deallocate(beyond, 1 * MIB);
    with_upstream.reset();
    CHECK(with_upstream.used_bytes() == 0, "reset");
}

static void pmr_blocks_are_aligned_by_their_address() {
    for (std::size_t align = 1; align <= MIB; align *= 2) {
        faultless::region_resource resource{faultless::region_options(align + MIB)};
        for (int i = 0; i < 3 && align * 3 < MIB; i++) {
            CHECK(is_aligned(static_cast<char *>(resource.allocate(100, align)), align), "misaligned to %zu", align);
        }
        void *large = resource.allocate(MIB / 8, align);
        CHECK(is_aligned(static_cast<char *>(large), align), "misaligned to %zu", align);
        memset(large, 1, MIB / 8);
    }
}

static void pmr_blocks_of_no_bytes_are_the_regions_or_upstreams() {
    faultless::region_resource resource(faultless::region(4096), std::pmr::new_delete_resource());
    void *first = resource.allocate(0, 1), *second = resource.allocate(0, 1);
    CHECK(first == resource.memory().data() && second != first, "two blocks at one address");
    resource.deallocate(second, 0, 1);
    resource.deallocate(first, 0, 1);
    CHECK(resource.used_bytes() == 0, "%zu in use", resource.used_bytes());
    void *whole = resource.allocate(4096, 16);
    CHECK(whole == resource.memory().data(), "not all of it");
    void *behind = resource.allocate(0, 16);
    CHECK(behind != static_cast<char *>(whole) + 4096, "the region's end, which nobody can give back");
    resource.deallocate(behind, 0, 16);
    resource.deallocate(whole, 4096, 16);
    CHECK(resource.used_bytes() == 0, "%zu in use", resource.used_bytes());
}
#else
static void pmr_containers_live_in_regions() {}
static void pmr_blocks_are_aligned_by_their_address() {}
static void pmr_blocks_of_no_bytes_are_the_regions_or_upstreams() {}
#endif

int main() {
    regions_own_their_memory();
    failures_are_exceptions_that_speak();
    vectors_live_in_regions();
    vectors_that_were_moved_from_are_filled_again();
    vectors_of_wide_values_are_aligned();
    pmr_containers_live_in_regions();
    pmr_blocks_are_aligned_by_their_address();
    pmr_blocks_of_no_bytes_are_the_regions_or_upstreams();
    return 0;
}
