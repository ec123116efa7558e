/*
 * populate: how long it takes to bring in a data set's memory, and whether the search that follows faults.
 *
 *   populate touch        BYTES                        mmap, and a write to each page
 *   populate map_populate BYTES                        mmap with MAP_POPULATE
 *   populate region       BYTES LIBRARY SHARED PAGES THREADS    fl_region_map; PAGES as in faultless.h
 *
 * Prints one line of key=value. Exit status 77: the machine has no pool of huge pages.
 */
#define _GNU_SOURCE
#include "library.h"
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

static double now_s(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

struct use {
    double at_s, user_s, system_s;
    long faults;
};

static struct use use_so_far(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    struct use use = {now_s(), usage.ru_utime.tv_sec + usage.ru_utime.tv_usec * 1e-6,
                      usage.ru_stime.tv_sec + usage.ru_stime.tv_usec * 1e-6, usage.ru_minflt};
    return use;
}

static char *mapped(size_t bytes, int flags) {
    char *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (data == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return data;
}

int main(int count, char **arguments) {
    if (count < 3) {
        fprintf(stderr, "usage: populate touch|map_populate|region BYTES [LIBRARY SHARED PAGES THREADS]\n");
        return 2;
    }
    const char *method = arguments[1];
    const size_t bytes = strtoull(arguments[2], NULL, 10);
    volatile char *data;
    fl_region_pages pages = {0};
    struct use before, after;
    if (strcmp(method, "region") == 0 && count == 7) {
        const struct regions regions = load_regions(arguments[3]);
        fl_region_options options = {0};
        options.bytes = bytes;
        options.shared = atoi(arguments[4]);
        options.pages = atoi(arguments[5]);
        options.threads = (unsigned)atoi(arguments[6]);
        before = use_so_far();
        fl_region *region = mapped_or_exit(&regions, &options);
        after = use_so_far();
        data = regions.data(region);
        regions.look(region, &pages);
    } else if (strcmp(method, "map_populate") == 0) {
        before = use_so_far();
        data = mapped(bytes, MAP_POPULATE);
        after = use_so_far();
    } else if (strcmp(method, "touch") == 0) {
        before = use_so_far();
        data = mapped(bytes, 0);
        for (size_t at = 0; at < bytes; at += 4096) data[at] = 1;
        after = use_so_far();
    } else {
        fprintf(stderr, "unknown method %s\n", method);
        return 2;
    }
    /* The first round faults in what the loop itself needs. */
    unsigned sum = data[0];
    struct use search = use_so_far();
    for (size_t at = 0; at < bytes; at += 4096) sum += data[at];
    struct use end = use_so_far();
    printf("elapsed_s=%.6f user_s=%.6f system_s=%.6f faults=%ld huge_bytes=%zu search_s=%.6f search_faults=%ld sum=%u\n",
           after.at_s - before.at_s, after.user_s - before.user_s, after.system_s - before.system_s,
           after.faults - before.faults, pages.huge_bytes, end.at_s - search.at_s, end.faults - search.faults, sum);
    return 0;
}
