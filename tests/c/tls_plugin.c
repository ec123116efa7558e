/* Thread-local variables so long that each thread's are a large block. */
static __thread char variables[200000];
void touch(void) {
    for (unsigned i = 0; i < sizeof variables; i += 1000) variables[i]++;
}
