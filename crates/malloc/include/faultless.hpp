// faultless.hpp - regions for C++: RAII, an allocator for std::vector, a std::pmr::memory_resource.
//
// A region is memory for data that is loaded once and searched by many threads, populated before the search begins so that the
// search takes no page fault on it. C++11 with exceptions; the memory resource needs C++17. Link libfaultless.
//
//     faultless::region gallery(faultless::region_options(bytes).shared(true).name("gallery"));
//     load(gallery.as<float>(), gallery.count<float>());
//     gallery.freeze();
#ifndef FAULTLESS_HPP
#define FAULTLESS_HPP

#if !defined(__cpp_exceptions) && !defined(__EXCEPTIONS)
#error "faultless.hpp needs exceptions; without them use the functions of faultless.h"
#endif

#include <faultless.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

#if defined(__has_include)
#if __cplusplus >= 201703L && __has_include(<memory_resource>)
#include <memory_resource>
#define FAULTLESS_HAS_MEMORY_RESOURCE 1
#endif
#endif

namespace faultless {

// What every region begins at a multiple of, however small it is and whatever pages the kernel has.
constexpr std::size_t region_alignment = 4096;

namespace detail {
// Bytes from an address to the next multiple of `align`, a power of two.
inline std::size_t bytes_to_alignment(const void *address, std::size_t align) noexcept {
    return static_cast<std::size_t>(-reinterpret_cast<std::uintptr_t>(address) & (align - 1));
}
} // namespace detail

// A region could not be had: what() is one line that says what was refused and what to do.
class region_error : public std::bad_alloc {
  public:
    explicit region_error(const fl_region_error &error) noexcept : error_(error) {}
    const char *what() const noexcept override { return error_.message; }
    // FL_REGION_...
    int code() const noexcept { return error_.code; }
    int errno_value() const noexcept { return error_.errno_value; }
    std::size_t needed_bytes() const noexcept { return error_.needed_bytes; }
    std::size_t available_bytes() const noexcept { return error_.available_bytes; }

  private:
    fl_region_error error_;
};

enum class pages { huge_wanted = FL_PAGES_HUGE_WANTED, small = FL_PAGES_SMALL, huge_required = FL_PAGES_HUGE_REQUIRED };
enum class populate {
    now = FL_POPULATE_NOW,
    in_background = FL_POPULATE_IN_BACKGROUND,
    by_use = FL_POPULATE_BY_USE
};

// Called with bytes done and bytes in all; false cancels. It must not throw.
using region_progress = std::function<bool(std::size_t, std::size_t)>;

// What a region is to be like; every function returns the options, so that calls chain.
class region_options {
  public:
    explicit region_options(std::size_t bytes = 0) : options_() { options_.bytes = bytes; }
    region_options &bytes(std::size_t bytes) { return options_.bytes = bytes, *this; }
    region_options &shared(bool shared) { return options_.shared = shared, *this; }
    region_options &pages(faultless::pages pages) { return options_.pages = static_cast<int>(pages), *this; }
    region_options &populate(faultless::populate when) { return options_.populate = static_cast<int>(when), *this; }
    region_options &locked(bool locked) { return options_.locked = locked, *this; }
    region_options &checked(bool checked) { return options_.unchecked = !checked, *this; }
    region_options &threads(unsigned threads) { return options_.threads = threads, *this; }
    region_options &huge_page_bytes(std::size_t bytes) { return options_.huge_page_bytes = bytes, *this; }
    region_options &name(std::string name) { return name_ = std::move(name), *this; }
    region_options &on_progress(region_progress progress) { return progress_ = std::move(progress), *this; }

  private:
    friend class region;
    fl_region_options options_;
    std::string name_;
    region_progress progress_;
};

// A region, unmapped at the end of its life. Functions may be called by one thread at a time, except the const ones; none of one that was
// moved from, until another is moved there.
class region {
  public:
    explicit region(const region_options &options) {
        fl_region_options request = options.options_;
        if (!options.name_.empty()) request.name = options.name_.c_str();
        if (options.progress_) {
            request.progress = &region::tell;
            request.context = const_cast<region_progress *>(&options.progress_);
        }
        fl_region_error error;
        handle_ = fl_region_map(&request, &error);
        if (!handle_) throw region_error(error);
    }
    explicit region(std::size_t bytes) : region(region_options(bytes)) {}

    // Maps for reading what another process shares; see fl_region_open.
    static region open(const std::string &path, faultless::populate when = faultless::populate::now) {
        fl_region_error error;
        return region(fl_region_open(path.c_str(), static_cast<int>(when), &error), error);
    }
    static region open(int descriptor, faultless::populate when = faultless::populate::now) {
        fl_region_error error;
        return region(fl_region_open_descriptor(descriptor, static_cast<int>(when), &error), error);
    }

    region(region &&other) noexcept : handle_(other.release()) {}
    region &operator=(region &&other) noexcept {
        if (this != &other) {
            fl_region_unmap(handle_);
            handle_ = other.release();
        }
        return *this;
    }
    region(const region &) = delete;
    region &operator=(const region &) = delete;
    ~region() { fl_region_unmap(handle_); }

    void *data() const noexcept { return fl_region_data(handle_); }
    std::size_t size() const noexcept { return fl_region_bytes(handle_); }

    // The contents as values of T, which must be trivially copyable and aligned by a page at most.
    template <class T> T *as() const noexcept {
        static_assert(std::is_trivially_copyable<T>::value, "a region holds types that may be copied as bytes");
        static_assert(alignof(T) <= region_alignment, "a region begins at a page: align the address from data() yourself");
        return static_cast<T *>(data());
    }
    template <class T> std::size_t count() const noexcept { return size() / sizeof(T); }

    // Brings in what is not there yet.
    void populate(const region_progress &progress = region_progress()) {
        fl_region_error error;
        check(fl_region_populate(handle_, function(progress), context(progress), &error), error);
    }
    void populate_in_background() {
        fl_region_error error;
        check(fl_region_populate_in_background(handle_, &error), error);
    }
    // Populating in the background: wait for its end, ask how far it is (done, total), let it end soon.
    void wait(const region_progress &progress = region_progress()) {
        fl_region_error error;
        check(fl_region_wait(handle_, function(progress), context(progress), &error), error);
    }
    std::pair<std::size_t, std::size_t> populated() const noexcept {
        std::size_t done, total;
        fl_region_populated(handle_, &done, &total);
        return {done, total};
    }
    void cancel() const noexcept { fl_region_cancel(handle_); }

    // Grows or shrinks; the contents may move.
    void resize(std::size_t bytes, const region_progress &progress = region_progress()) {
        fl_region_error error;
        check(fl_region_resize(handle_, bytes, function(progress), context(progress), &error), error);
    }
    // Read-only from now on; writable again.
    void freeze() {
        fl_region_error error;
        check(fl_region_freeze(handle_, &error), error);
    }
    void thaw() {
        fl_region_error error;
        check(fl_region_thaw(handle_, &error), error);
    }

    // The descriptor of a shared region's file, which stays the region's; -1 for a private one.
    int descriptor() const noexcept { return fl_region_descriptor(handle_); }
    // What pages the kernel gave; all zero where /proc cannot be read.
    fl_region_pages look() const noexcept {
        fl_region_pages pages = fl_region_pages();
        fl_region_look(handle_, &pages);
        return pages;
    }

    // For the C functions; release() gives the region up, so that the caller unmaps it.
    fl_region *handle() const noexcept { return handle_; }
    fl_region *release() noexcept {
        fl_region *handle = handle_;
        handle_ = nullptr;
        return handle;
    }
    // Takes over what release() gave up.
    static region adopt(fl_region *handle) noexcept {
        region adopted;
        adopted.handle_ = handle;
        return adopted;
    }

  private:
    region() noexcept : handle_(nullptr) {}
    region(fl_region *handle, const fl_region_error &error) : handle_(handle) {
        if (!handle_) throw region_error(error);
    }
    static int tell(void *context, std::size_t done, std::size_t total) {
        return (*static_cast<region_progress *>(context))(done, total) ? 0 : 1;
    }
    static fl_region_progress function(const region_progress &progress) { return progress ? &region::tell : nullptr; }
    static void *context(const region_progress &progress) { return const_cast<region_progress *>(&progress); }
    static void check(int code, const fl_region_error &error) {
        if (code != FL_REGION_OK) throw region_error(error);
    }

    fl_region *handle_;
};

// An allocator whose every block of 64 KiB or more is a region of its own; smaller blocks come from operator new. For containers that
// take their memory at once: reserve() first, since a vector that grows by doubling is populated and copied each time.
//
//     using allocator = faultless::region_allocator<float>;
//     std::vector<float, allocator> gallery(allocator(faultless::region_options().shared(true)));
//     gallery.reserve(count);
template <class T> class region_allocator {
  public:
    using value_type = T;
    using propagate_on_container_move_assignment = std::true_type;
    using propagate_on_container_swap = std::true_type;
    using is_always_equal = std::true_type; // any one gives back what another took

    region_allocator() : options_(std::make_shared<region_options>()) {}
    // The size of the options does not count.
    explicit region_allocator(region_options options)
        : options_(std::make_shared<region_options>(std::move(options))) {}
    template <class U> region_allocator(const region_allocator<U> &other) noexcept : options_(other.options()) {}
    // Moving is copying: a container that was moved from keeps its allocator, and may be filled again.
    region_allocator(const region_allocator &) noexcept = default;
    region_allocator &operator=(const region_allocator &) noexcept = default;

    T *allocate(std::size_t count) {
        if (count > (std::numeric_limits<std::size_t>::max)() / 2 / sizeof(T)) throw std::bad_alloc();
        if (!is_region(count)) return static_cast<T *>(take(count * sizeof(T)));
        region_options options = *options_;
        region memory(options.bytes(padding() + handle_offset(count) + sizeof(fl_region *)));
        char *data = static_cast<char *>(memory.data());
        data += detail::bytes_to_alignment(data, alignof(T));
        // The handle stands behind the last value, where deallocate finds it.
        ::new (static_cast<void *>(data + handle_offset(count))) fl_region *(memory.handle());
        memory.release();
        return reinterpret_cast<T *>(data);
    }
    void deallocate(T *block, std::size_t count) noexcept {
        if (!is_region(count)) return give(block);
        char *data = reinterpret_cast<char *>(block);
        fl_region_unmap(*reinterpret_cast<fl_region **>(data + handle_offset(count)));
    }

    const std::shared_ptr<const region_options> &options() const noexcept { return options_; }

  private:
    static bool is_region(std::size_t count) { return count * sizeof(T) >= (std::size_t(64) << 10); }
    // A region may begin at a page that is no multiple of a larger alignment.
    static constexpr std::size_t padding() {
        return alignof(T) > region_alignment ? alignof(T) - region_alignment : 0;
    }
    static std::size_t handle_offset(std::size_t count) {
        const std::size_t align = alignof(fl_region *);
        return (count * sizeof(T) + align - 1) / align * align;
    }
#if defined(__cpp_aligned_new)
    static void *take(std::size_t bytes) { return ::operator new(bytes, std::align_val_t(alignof(T))); }
    static void give(T *block) { ::operator delete(block, std::align_val_t(alignof(T))); }
#else
    static_assert(alignof(T) <= alignof(std::max_align_t), "larger alignments need C++17");
    static void *take(std::size_t bytes) { return ::operator new(bytes); }
    static void give(T *block) { ::operator delete(block); }
#endif

    std::shared_ptr<const region_options> options_;
};

template <class T, class U> bool operator==(const region_allocator<T> &, const region_allocator<U> &) { return true; }
template <class T, class U> bool operator!=(const region_allocator<T> &, const region_allocator<U> &) { return false; }

#ifdef FAULTLESS_HAS_MEMORY_RESOURCE
// Hands out a region's memory from its beginning to its end, for std::pmr containers that are filled once. Only the block handed out last
// can be given back; the rest comes back with the region. When the region is used up, `upstream` is asked (by default it throws
// std::bad_alloc). Not for several threads at a time.
class region_resource : public std::pmr::memory_resource {
  public:
    explicit region_resource(region &&memory,
                             std::pmr::memory_resource *upstream = std::pmr::null_memory_resource())
        : region_(std::move(memory)), upstream_(upstream) {}
    explicit region_resource(const region_options &options,
                             std::pmr::memory_resource *upstream = std::pmr::null_memory_resource())
        : region_resource(region(options), upstream) {}

    std::size_t used_bytes() const noexcept { return used_; }
    // To freeze it, for instance. Growing it may move it: not while blocks are in use.
    region &memory() noexcept { return region_; }
    // Forgets all blocks.
    void reset() noexcept { used_ = 0; }

  private:
    void *do_allocate(std::size_t bytes, std::size_t align) override {
        if (used_ > region_.size()) return upstream_->allocate(bytes, align);
        char *const free = static_cast<char *>(region_.data()) + used_;
        const std::size_t left = region_.size() - used_;
        const std::size_t padding = detail::bytes_to_alignment(free, align);
        if (padding > left || taken(bytes) > left - padding) return upstream_->allocate(bytes, align);
        used_ += padding + taken(bytes);
        return free + padding;
    }
    void do_deallocate(void *block, std::size_t bytes, std::size_t align) override {
        char *const data = static_cast<char *>(region_.data());
        char *const at = static_cast<char *>(block);
        if (std::less<char *>()(at, data) || !std::less<char *>()(at, data + region_.size())) {
            upstream_->deallocate(block, bytes, align);
        } else if (at + taken(bytes) == data + used_) {
            used_ = static_cast<std::size_t>(at - data);
        }
    }
    // A block of no bytes takes one: at the region's end it would be taken for one of upstream's when it is given back.
    static std::size_t taken(std::size_t bytes) noexcept { return bytes > 0 ? bytes : 1; }
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override { return this == &other; }

    region region_;
    std::pmr::memory_resource *upstream_;
    std::size_t used_ = 0;
};
#endif

} // namespace faultless

#endif
