/* What the compiler is told about functions, variables and conditions. */
#ifndef FAULTLESS_RECORDER_ATTRIBUTES_H
#define FAULTLESS_RECORDER_ATTRIBUTES_H

#define API __attribute__((visibility("default")))
#define COLD __attribute__((noinline, cold))
#define INLINE static inline __attribute__((always_inline))
/* Found by one addition: no function of the loader is called, which might allocate. */
#define THREAD_LOCAL __thread __attribute__((tls_model("initial-exec")))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#endif
