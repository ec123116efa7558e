/* Memory before main and after it: preinit functions, constructors, atexit handlers, destructors. */
#include "check.h"

static unsigned char *from_preinit, *from_constructor, *from_main, *from_handler;

static void preinit(int argc, char **argv, char **environment) {
    (void)argc, (void)argv, (void)environment;
    from_preinit = malloc(777);
    fill(from_preinit, 777, 1);
    for (size_t n = 0; n < 300000; n = n * 2 + 1) free(realloc(calloc(1, n), n + 1));
}
__attribute__((section(".preinit_array"), used)) static void (*preinit_entry)(int, char **, char **) = preinit;

__attribute__((constructor(101))) static void constructor(void) {
    CHECK_PATTERN(from_preinit, 777, 777, 1);
    from_constructor = malloc(50000);
    fill(from_constructor, 50000, 2);
}

static void handler(void) {
    CHECK_PATTERN(from_main, 123456, 123456, 3);
    from_main = realloc(from_main, 300);
    from_handler = calloc(1, 3000);
    fill(from_handler, 3000, 4);
}

__attribute__((destructor(101))) static void destructor(void) {
    CHECK_PATTERN(from_preinit, 777, 777, 1);
    CHECK_PATTERN(from_constructor, 50000, 50000, 2);
    CHECK_PATTERN(from_main, 123456, 300, 3);
    CHECK_PATTERN(from_handler, 3000, 3000, 4);
    free(from_preinit), free(from_constructor), free(from_main), free(from_handler);
    for (size_t n = 0; n < 300000; n = n * 2 + 1) free(realloc(calloc(1, n), n + 1));
    malloc_trim(0);
}

int main(void) {
    CHECK_PATTERN(from_constructor, 50000, 50000, 2);
    from_main = malloc(123456);
    fill(from_main, 123456, 3);
    CHECK(atexit(handler) == 0, "atexit failed");
    void *many[200];
    for (size_t i = 0; i < 200; i++) many[i] = malloc(i * 17);
    for (size_t i = 0; i < 200; i += 2) free(many[i]);
    return 0;
}
