/* Programs that misuse the allocator, one a name; each is expected to be stopped before it reaches the end of main. */
#include "check.h"
#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>

static char in_data[4096] __attribute__((aligned(4096)));
static void *free_it(void *p) {
    free(p);
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc == 2, "usage: misuse KIND");
    const char *kind = argv[1];
#define KIND(name) if (strcmp(kind, name) == 0)
    unsigned char *small = malloc(100), *other = malloc(100), *large = malloc(MIB), *larger = malloc(3 * MIB);
    size_t offset = opaque_size(0);
    small = opaque(small), large = opaque(large);

    KIND("double_free") free(small), free(small);
    KIND("double_free_with_another_between") free(small), free(other), free(small);
    KIND("double_free_large") free(large), free(large);
    KIND("double_free_large_with_another_between") free(large), free(larger), free(large);
    KIND("double_free_of_large_that_comes_and_goes") {
        for (int i = 0; i < 100; i++) free(large), large = opaque(malloc(MIB)), memset(large, 1, MIB);
        free(large), free(large);
    }
    KIND("double_free_by_another_thread") {
        pthread_t thread;
        free(small);
        pthread_create(&thread, NULL, free_it, small);
        pthread_join(thread, NULL);
    }
    KIND("double_free_after_trim") free(small), free(other), malloc_trim(0), free(small);
    KIND("double_delete_of_array") {
        void *p = calloc(10, 50);
        free(p);
        free(opaque(p));
    }
    KIND("free_of_stack") {
        char block[256] __attribute__((aligned(16)));
        free(opaque(block + offset));
    }
    KIND("free_of_static") free(opaque(in_data + offset));
    KIND("free_of_static_inside") free(opaque(in_data + 64));
    KIND("free_of_code") free(opaque((void *)(uintptr_t)main));
    KIND("free_of_low_address") free((void *)opaque_size(0x1000));
    KIND("free_of_noncanonical_address") free((void *)opaque_size(0x8000123412341230));
    KIND("free_of_top_address") free((void *)opaque_size(SIZE_MAX - 15));
    KIND("free_of_mapping") free(mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    KIND("free_misaligned") free(small + 1);
    KIND("free_misaligned_by_8") free(small + 8);
    KIND("free_inside_small") free(small + 16);
    KIND("free_before_the_first_small") {
        /* Some begin where their slab does. */
        uintptr_t begun = 0;
        for (int i = 0; i < 1000 && begun == 0; i++) {
            uintptr_t block = (uintptr_t)opaque(malloc(4000));
            if (block % 65536 != 0 && block % 65536 < 4000) begun = block;
        }
        free((void *)(begun & ~(uintptr_t)65535)), malloc_trim(0);
    }
    KIND("free_inside_large") free(large + 4096);
    KIND("free_inside_large_next_granule") free(large + 65536);
    KIND("free_inside_large_odd") free(large + 24);
    KIND("free_before_large") {
        /* Some begin where their span does. */
        unsigned char *begun = NULL;
        for (int i = 0; i < 10 && (uintptr_t)begun % 65536 == 0; i++) begun = opaque(malloc(MIB + 5000));
        free((void *)((uintptr_t)begun & ~(uintptr_t)65535));
    }
    if (strncmp(kind, "free_sized", 10) == 0) {
        void (*sized)(void *, size_t) = (void (*)(void *, size_t))dlsym(RTLD_DEFAULT, "free_sized");
        KIND("free_sized_of_more_than_a_small_block") sized(small, 5000);
        KIND("free_sized_of_more_than_a_large_block") sized(large, 2 * MIB);
        KIND("free_sized_of_stack") sized(&offset, sizeof offset);
    }
    KIND("realloc_of_freed") free(small), small = realloc(small, 5000);
    KIND("realloc_of_freed_large") free(large), large = realloc(large, 5 * MIB);
    KIND("realloc_of_static") large = realloc(opaque(in_data), 100);
    KIND("realloc_inside_large") large = realloc(large + 4096, 100);
    KIND("realloc_misaligned") small = realloc(small + 3, 100);
    opaque(small), opaque(large), opaque(other), opaque(larger);
    _exit(0);
}
