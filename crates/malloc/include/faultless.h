/* faultless.h - what libfaultless offers beyond the C library's allocation functions.
 *
 * Linking libfaultless (or preloading it) replaces malloc, free, calloc, realloc, reallocarray, aligned_alloc,
 * posix_memalign, memalign, valloc, pvalloc, malloc_usable_size, free_sized, free_aligned_sized, mallopt, malloc_trim,
 * mallinfo, mallinfo2, malloc_stats, malloc_info and all C++ operator new and delete: nothing of this header is needed
 * for that. (Under libfaultless.a these operators stay the C++ library's, which call malloc.) The shared library also has jemalloc's
 * functions (mallocx, mallctl, ...), and its own dlopen, setrlimit and prlimit, which go on to the C library's.
 *
 * A C++ program of -static-libstdc++ links libfaultless.a: under the shared library its operator new cannot throw, since the
 * linker leaves the C++ library's own out, and the process ends with a message where memory is exhausted.
 */
#ifndef FAULTLESS_H
#define FAULTLESS_H

#include <stddef.h>

#ifdef __cplusplus
/* Where it declares free_sized, that must come before ours: it says noexcept. */
#include <stdlib.h>
extern "C" {
#endif

/* Version of the library, such as "0.1.0". Never null. */
const char *faultless_version(void);

/* Gives every page that can be given back to the kernel, also from the caches of other threads.
 * Returns the bytes handed back; RSS may fall by less, since some of their pages were not resident. Safe at any time, from any
 * thread, but not in a signal handler. */
size_t faultless_trim(void);

/* C23; some C libraries do not declare them yet. A size larger than the block ends the process with a message. */
void free_sized(void *block, size_t bytes);
void free_aligned_sized(void *block, size_t alignment, size_t bytes);

/* ---- Regions: memory for data that is loaded once and searched by many threads --------------------------------------------
 *
 * A region is populated before the search begins, so that the search takes no page fault on it:
 *
 *     fl_region_options options = {0};
 *     options.bytes = bytes;
 *     fl_region_error error;
 *     fl_region *region = fl_region_map(&options, &error);
 *     if (!region) { fprintf(stderr, "%s\n", error.message); exit(1); }
 *     load(fl_region_data(region));
 *     fl_region_freeze(region, NULL);
 *
 * Limits (memory, cgroup, locked memory, the pool of huge pages, ...) are compared with what is needed before a page is
 * populated; error.message says which is too low and what to do. Functions of one region are not to be called at the same time by
 * several threads, except fl_region_data, fl_region_bytes, fl_region_populated, fl_region_cancel, fl_region_descriptor and
 * fl_region_look. Failures also set errno, but for that of fl_region_look; error may be NULL everywhere.
 */
typedef struct fl_region fl_region;

/* What pages to use. Required ones come from the kernel's pool (hugetlb). */
enum { FL_PAGES_HUGE_WANTED = 0, FL_PAGES_SMALL = 1, FL_PAGES_HUGE_REQUIRED = 2 };

/* When pages are brought in: before the region is handed out, by threads of its own (before Linux 5.14, or where a filter
 * refuses madvise, as NOW), or each when it is first touched. */
enum { FL_POPULATE_NOW = 0, FL_POPULATE_IN_BACKGROUND = 1, FL_POPULATE_BY_USE = 2 };

/* What is wrong: fl_region_error.code, and what the functions return that do not return a region. */
enum {
    FL_REGION_OK = 0,
    FL_REGION_ARGUMENT = 1,  /* the request makes no sense */
    FL_REGION_REFUSED = 2,   /* the kernel refused a call: errno_value */
    FL_REGION_CANCELLED = 3, /* needed_bytes were to be populated, available_bytes were */
    /* A limit leaves available_bytes where needed_bytes are needed. Found before anything is populated, or where others took the memory
     * meanwhile. */
    FL_REGION_LIMIT_ADDRESS_SPACE = 10, /* RLIMIT_AS */
    FL_REGION_LIMIT_DATA = 11,          /* RLIMIT_DATA */
    FL_REGION_LIMIT_FILE_SIZE = 12,     /* RLIMIT_FSIZE, for shared regions */
    FL_REGION_LIMIT_LOCKED_MEMORY = 13, /* RLIMIT_MEMLOCK */
    FL_REGION_LIMIT_COMMIT = 14,        /* vm.overcommit_memory=2 */
    FL_REGION_LIMIT_CGROUP = 15,        /* memory.max, memory.limit_in_bytes */
    FL_REGION_LIMIT_HUGE_PAGE_POOL = 16,
    FL_REGION_LIMIT_MEMORY = 17
};

typedef struct fl_region_error {
    int code;
    int errno_value;
    size_t needed_bytes;
    size_t available_bytes;
    char message[384]; /* one line: what was refused, in figures, and what to do */
} fl_region_error;

/* Called by the thread that populates or waits; a result other than 0 cancels. */
typedef int (*fl_region_progress)(void *context, size_t done_bytes, size_t total_bytes);

/* All zero but bytes: private, huge pages wanted, populated now by as many threads as there are CPUs for (at most 16). */
typedef struct fl_region_options {
    size_t bytes;
    int shared;             /* also for forked children and, through its descriptor, for other processes */
    int pages;              /* FL_PAGES_... */
    int populate;           /* FL_POPULATE_... */
    int locked;             /* keep pages in memory from the moment they are there */
    int unchecked;          /* do not compare limits and free memory first */
    unsigned threads;       /* that populate; 0: chosen */
    const char *name;       /* in /proc/PID/maps; NULL: chosen */
    size_t huge_page_bytes; /* of required huge pages; 0: the kernel's usual size */
    fl_region_progress progress; /* while populating now */
    void *context;               /* for progress */
    size_t reserved[4];          /* zero */
} fl_region_options;

/* What keeps transparent huge pages from coming by themselves. Where huge pages are wanted and a kernel since 6.1 is told "never" by
 * its settings, populating makes them all the same. */
enum {
    FL_OBSTACLE_NONE = 0,
    FL_OBSTACLE_NEVER = 1,        /* /sys/kernel/mm/transparent_hugepage/enabled */
    FL_OBSTACLE_SHARED_NEVER = 2, /* .../shmem_enabled, which is what counts for shared regions */
    FL_OBSTACLE_DISABLED = 3,     /* PR_SET_THP_DISABLE */
    FL_OBSTACLE_MISSING = 4
};

typedef struct fl_region_pages {
    size_t resident_bytes;
    size_t huge_bytes;   /* of these, in huge pages */
    size_t locked_bytes; /* of these, locked */
    size_t page_bytes;   /* of the mapping: more than the system's for required huge pages */
    int obstacle;        /* FL_OBSTACLE_... */
} fl_region_pages;

/* Makes a region. NULL on failure: nothing is left behind then. */
fl_region *fl_region_map(const fl_region_options *options, fl_region_error *error);

/* Maps for reading what another process shares: /proc/PID/fd/NUMBER, a received descriptor (which stays the caller's), or any file that
 * nobody writes to or makes shorter meanwhile. */
fl_region *fl_region_open(const char *path, int populate, fl_region_error *error);
fl_region *fl_region_open_descriptor(int descriptor, int populate, fl_region_error *error);

/* Gives a region back. NULL does nothing. */
void fl_region_unmap(fl_region *region);

/* The contents, with a page without access at either end. They begin at a multiple of 4096; at one of a huge page's bytes where the region
 * is as large as a huge page and the kernel has them. */
void *fl_region_data(const fl_region *region);
size_t fl_region_bytes(const fl_region *region);

/* Brings in pages that are not there yet; pages that are stay as they are. */
int fl_region_populate(fl_region *region, fl_region_progress progress, void *context, fl_region_error *error);
int fl_region_populate_in_background(fl_region *region, fl_region_error *error);

/* Populating in the background: wait for its end, ask how far it is, let it end soon. */
int fl_region_wait(fl_region *region, fl_region_progress progress, void *context, fl_region_error *error);
void fl_region_populated(const fl_region *region, size_t *done_bytes, size_t *total_bytes);
void fl_region_cancel(const fl_region *region);

/* Grows or shrinks; the contents may move. What is new reads as zero and is populated, except in a region by use. On failure the region
 * is as it was, unless it grew and what is new was not populated to the end: fl_region_bytes tells. */
int fl_region_resize(fl_region *region, size_t bytes, fl_region_progress progress, void *context, fl_region_error *error);

/* Read-only from now on (a write ends the process); writable again, for this process. The file of a shared region is sealed by
 * freezing: nobody changes its size or maps it for writing any more. */
int fl_region_freeze(fl_region *region, fl_region_error *error);
int fl_region_thaw(fl_region *region, fl_region_error *error);

/* The descriptor of a shared region's file, to be passed on; it stays the region's. -1 for a private one. */
int fl_region_descriptor(const fl_region *region);

/* What pages the kernel gave. Looks at the whole process: not for a fast path. -1 where /proc cannot be read. */
int fl_region_look(const fl_region *region, fl_region_pages *pages);

#ifdef __cplusplus
}
#endif

#endif
