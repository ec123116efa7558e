/* libfaultless's regions by dlopen: malloc stays whose it was, so that regions can be measured beside any allocator. */
#ifndef LIBRARY_H
#define LIBRARY_H
#include <dlfcn.h>
#include <faultless.h>
#include <stdio.h>
#include <stdlib.h>

struct regions {
    fl_region *(*map)(const fl_region_options *, fl_region_error *);
    void *(*data)(const fl_region *);
    int (*wait)(fl_region *, fl_region_progress, void *, fl_region_error *);
    int (*freeze)(fl_region *, fl_region_error *);
    int (*look)(const fl_region *, fl_region_pages *);
    void (*unmap)(fl_region *);
};

static void *library_symbol(void *library, const char *name) {
    void *symbol = dlsym(library, name);
    if (!symbol) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return symbol;
}

static struct regions load_regions(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    struct regions regions;
    *(void **)&regions.map = library_symbol(library, "fl_region_map");
    *(void **)&regions.data = library_symbol(library, "fl_region_data");
    *(void **)&regions.wait = library_symbol(library, "fl_region_wait");
    *(void **)&regions.freeze = library_symbol(library, "fl_region_freeze");
    *(void **)&regions.look = library_symbol(library, "fl_region_look");
    *(void **)&regions.unmap = library_symbol(library, "fl_region_unmap");
    return regions;
}

static fl_region *mapped_or_exit(const struct regions *regions, const fl_region_options *options) {
    fl_region_error error;
    fl_region *region = regions->map(options, &error);
    if (!region) {
        fprintf(stderr, "%s\n", error.message);
        exit(error.code == FL_REGION_LIMIT_HUGE_PAGE_POOL ? 77 : 1);
    }
    return region;
}
#endif
