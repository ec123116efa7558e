/* Preloaded behind the library: counts who registers handlers of forks, and refuses as many as it is told to. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

typedef void (*handler)(void);

int registrations, refusals_left;
handler first_registered;

int __register_atfork(handler prepare, handler parent, handler child, void *object) {
    if (registrations++ == 0) first_registered = prepare;
    if (refusals_left > 0) return refusals_left--, 12;
    int (*real)(handler, handler, handler, void *) = dlsym(RTLD_NEXT, "__register_atfork");
    return real(prepare, parent, child, object);
}
