/* Every allocation function of C and C++ comes from the preloaded library, none from elsewhere. */
#include "check.h"
#include <dlfcn.h>

static const char *const names[] = {
    "malloc", "free", "calloc", "realloc", "reallocarray", "aligned_alloc", "posix_memalign", "memalign", "valloc",
    "pvalloc", "malloc_usable_size", "free_sized", "free_aligned_sized", "cfree", "mallopt", "malloc_trim", "mallinfo",
    "mallinfo2", "malloc_stats", "malloc_info",
    /* operator new: plain, nothrow, aligned, aligned nothrow; then the arrays */
    "_Znwm", "_ZnwmRKSt9nothrow_t", "_ZnwmSt11align_val_t", "_ZnwmSt11align_val_tRKSt9nothrow_t",
    "_Znam", "_ZnamRKSt9nothrow_t", "_ZnamSt11align_val_t", "_ZnamSt11align_val_tRKSt9nothrow_t",
    /* operator delete: plain, sized, nothrow, aligned, sized aligned, aligned nothrow; then the arrays */
    "_ZdlPv", "_ZdlPvm", "_ZdlPvRKSt9nothrow_t", "_ZdlPvSt11align_val_t", "_ZdlPvmSt11align_val_t",
    "_ZdlPvSt11align_val_tRKSt9nothrow_t",
    "_ZdaPv", "_ZdaPvm", "_ZdaPvRKSt9nothrow_t", "_ZdaPvSt11align_val_t", "_ZdaPvmSt11align_val_t",
    "_ZdaPvSt11align_val_tRKSt9nothrow_t",
    /* jemalloc's own */
    "mallocx", "rallocx", "xallocx", "sallocx", "dallocx", "sdallocx", "nallocx", "mallctl", "mallctlnametomib",
    "mallctlbymib", "malloc_stats_print"};

int main(void) {
    const char *library = getenv("LD_PRELOAD");
    CHECK(library != NULL, "LD_PRELOAD is not set");
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        void *symbol = dlsym(RTLD_DEFAULT, names[i]);
        CHECK(symbol != NULL, "%s is not defined", names[i]);
        Dl_info info;
        CHECK(dladdr(symbol, &info) != 0, "%s is at %p, in no library", names[i], symbol);
        CHECK(strcmp(info.dli_fname, library) == 0, "%s comes from %s", names[i], info.dli_fname);
    }
    return 0;
}
