/* What is written at the end of the process goes to what was standard error at its start, not into a file that has its number since. */
#include "check.h"

int main(void) {
    static const char record[] = "a record";
    char name[] = "/tmp/faultless-record-XXXXXX", found[100];
    close(2);
    int file = mkstemp(name);
    if (file != 2 || write(file, record, sizeof record) != sizeof record) return 1;
    /* To be read when this process has ended. */
    int other = open(name, O_RDONLY);
    unlink(name);
    int ends[2];
    if (other < 0 || pipe(ends) != 0) return 1;
    pid_t child = fork();
    if (child == 0) {
        close(ends[1]);
        /* Until the parent has ended. */
        if (read(ends[0], found, 1) != 0) _exit(1);
        ssize_t got = read(other, found, sizeof found);
        printf("%s\n", got == sizeof record ? "alone" : "something was written behind the record");
        fflush(stdout);
        _exit(0);
    }
    free(malloc(100000));
    return child < 0;
}
