/* Regions from C: no fault in the search, errors in words, guard pages, freezing, other processes, forks while populating. */
#include "seccomp.h"
#include <faultless.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

static long minor_faults(void) {
    struct rusage usage;
    CHECK(getrusage(RUSAGE_THREAD, &usage) == 0, "getrusage: errno %d", errno);
    return usage.ru_minflt;
}

static long faults_of_a_search(const fl_region *region) {
    const volatile char *data = fl_region_data(region);
    size_t bytes = fl_region_bytes(region);
    unsigned sum = 0;
    long before = minor_faults();
    for (size_t at = 0; at < bytes; at += 4096) sum += data[at];
    (void)sum;
    return minor_faults() - before;
}

static fl_region *map(fl_region_options options) {
    fl_region_error error;
    fl_region *region = fl_region_map(&options, &error);
    CHECK(region != NULL, "%s", error.message);
    return region;
}

static size_t last_done;
static int remember(void *context, size_t done, size_t total) {
    last_done = done;
    CHECK(context == &last_done && done <= total, "done %zu of %zu", done, total);
    return 0;
}
static int percent(void *context, size_t done, size_t total) {
    *(size_t *)context = done * 100 / total;
    return 0;
}
static int stop(void *context, size_t done, size_t total) {
    (void)context, (void)done, (void)total;
    return 1;
}

static sigjmp_buf back;
static void jump(int signal) { siglongjmp(back, signal); }

/* Does a write there end in SIGSEGV? */
static bool is_forbidden(volatile char *address) {
    struct sigaction action = {.sa_handler = jump}, before;
    sigaction(SIGSEGV, &action, &before);
    bool forbidden = sigsetjmp(back, 1) != 0;
    if (!forbidden) *address = 1;
    sigaction(SIGSEGV, &before, NULL);
    return forbidden;
}

/* Since glibc 2.32. */
extern char __libc_single_threaded __attribute__((weak));

/* With a second thread libc's locks cost more, in malloc and stdio too, for the rest of the process. */
static void one_piece_of_work_takes_no_other_thread(void) {
    for (int shared = 0; shared < 2; shared++) {
        fl_region *region = map((fl_region_options){.bytes = 16 * MIB, .shared = shared, .threads = 8});
        CHECK(fl_region_populate(region, NULL, NULL, NULL) == 0, "populate: errno %d", errno);
        fl_region_unmap(region);
    }
    CHECK(!&__libc_single_threaded || __libc_single_threaded, "a thread was started");
}

static void searches_take_no_fault(void) {
    for (int shared = 0; shared < 2; shared++) {
        for (int pages = FL_PAGES_HUGE_WANTED; pages <= FL_PAGES_SMALL; pages++) {
            fl_region *region = map((fl_region_options){.bytes = 8 * MIB, .shared = shared, .pages = pages});
            CHECK(faults_of_a_search(region) == 0, "faults: shared %d pages %d", shared, pages);
            fl_region_pages look;
            CHECK(fl_region_look(region, &look) == 0 && look.resident_bytes == 8 * MIB, "%zu", look.resident_bytes);
            CHECK((fl_region_descriptor(region) >= 0) == shared, "descriptor %d", fl_region_descriptor(region));
            fl_region_unmap(region);
        }
    }
    fl_region *region =
        map((fl_region_options){.bytes = 8 * MIB, .pages = FL_PAGES_SMALL, .populate = FL_POPULATE_BY_USE});
    CHECK(faults_of_a_search(region) > 100, "a region by use took no faults: the count is blind");
    CHECK(fl_region_wait(region, percent, &last_done, NULL) == 0, "wait: errno %d", errno);
    CHECK(fl_region_populate(region, remember, &last_done, NULL) == 0 && last_done == 8 * MIB, "%zu", last_done);
    fl_region_unmap(region);
    fl_region_unmap(NULL);
}

/* Since Linux 6.18 a process may be told to do without huge pages but where they are asked for, as regions ask. */
static void huge_pages_for_the_asking_are_not_said_to_be_kept_away(void) {
    enum { EXCEPT_ADVISED = 2 };
    if (prctl(PR_SET_THP_DISABLE, 1, EXCEPT_ADVISED, 0, 0) != 0) {
        say_skipped("huge pages for the asking need Linux 6.18");
        return;
    }
    for (int shared = 0; shared < 2; shared++) {
        fl_region *region = map((fl_region_options){.bytes = 8 * MIB, .shared = shared});
        fl_region_pages look;
        CHECK(fl_region_look(region, &look) == 0 && look.obstacle != FL_OBSTACLE_DISABLED, "shared %d", shared);
        fl_region_unmap(region);
    }
    CHECK(prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0) == 0, "prctl: errno %d", errno);
}

static void errors_speak(void) {
    fl_region_error error;
    fl_region_options options = {.bytes = (size_t)1 << 46};
    errno = 0;
    CHECK(fl_region_map(&options, &error) == NULL && errno == ENOMEM, "64 TiB were populated");
    CHECK(error.code >= FL_REGION_LIMIT_ADDRESS_SPACE && error.needed_bytes > error.available_bytes, "code %d", error.code);
    CHECK(strstr(error.message, "the region needs 6") && strchr(error.message, ';'), "%s", error.message);
    CHECK(fl_region_map(&options, NULL) == NULL, "without a report");
    options = (fl_region_options){.bytes = 1, .pages = 7};
    CHECK(fl_region_map(&options, &error) == NULL && error.code == FL_REGION_ARGUMENT && errno == EINVAL, "%d", error.code);
    options = (fl_region_options){.bytes = 1, .reserved = {0, 1}};
    CHECK(fl_region_map(&options, &error) == NULL && error.code == FL_REGION_ARGUMENT, "%s", error.message);
    options = (fl_region_options){.bytes = 64 * MIB, .progress = stop, .threads = 1};
    CHECK(fl_region_map(&options, &error) == NULL && error.code == FL_REGION_CANCELLED && errno == ECANCELED, "%d", error.code);
    CHECK(fl_region_open("/no/such/file", 0, &error) == NULL && error.errno_value == ENOENT, "%s", error.message);
    CHECK(fl_region_open("/dev/zero", 0, &error) == NULL && strstr(error.message, "device"), "%s", error.message);
    CHECK(fl_region_open("/", 0, &error) == NULL && strstr(error.message, "; only a file"), "%s", error.message);
    CHECK(fl_region_open_descriptor(-1, 0, &error) == NULL && strstr(error.message, "; the number"), "%s", error.message);
    int write_only = open("/dev/shm", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (write_only >= 0) {
        CHECK(ftruncate(write_only, 4096) == 0, "ftruncate: errno %d", errno);
        CHECK(fl_region_open_descriptor(write_only, 0, &error) == NULL && strstr(error.message, "open for reading"), "%s", error.message);
        close(write_only);
    } else say_skipped("/dev/shm takes no files without a name");
    char long_name[400] = {0};
    memset(long_name, 'x', sizeof long_name - 1);
    options = (fl_region_options){.bytes = 1, .shared = 1, .name = long_name};
    CHECK(fl_region_map(&options, &error) == NULL && strstr(error.message, "at most 249 bytes"), "%s", error.message);
    for (int shared = 0; shared < 2; shared++) {
        /* No kernel has huge pages of this size. */
        options = (fl_region_options){.bytes = 1, .shared = shared, .pages = FL_PAGES_HUGE_REQUIRED, .huge_page_bytes = 8192};
        CHECK(fl_region_map(&options, &error) == NULL && strstr(error.message, "; see"), "%s", error.message);
    }
    /* A limit of our own: refused before SIGXFSZ could end the process. */
    struct rlimit before, small = {MIB, RLIM_INFINITY};
    getrlimit(RLIMIT_FSIZE, &before);
    small.rlim_max = before.rlim_max;
    if (setrlimit(RLIMIT_FSIZE, &small) == 0) {
        options = (fl_region_options){.bytes = 2 * MIB, .shared = 1};
        CHECK(fl_region_map(&options, &error) == NULL && error.code == FL_REGION_LIMIT_FILE_SIZE, "%s", error.message);
        /* Files are as long as asked for, in the middle of a page too. */
        fl_region *region = map((fl_region_options){.bytes = MIB - 2000, .shared = 1});
        small.rlim_cur = MIB - 1000;
        setrlimit(RLIMIT_FSIZE, &small);
        CHECK(fl_region_resize(region, MIB - 1000, NULL, NULL, &error) == 0, "%s", error.message);
        CHECK(fl_region_resize(region, MIB - 999, NULL, NULL, &error) == FL_REGION_LIMIT_FILE_SIZE, "%s", error.message);
        CHECK(fl_region_bytes(region) == MIB - 1000, "%zu bytes", fl_region_bytes(region));
        fl_region_unmap(region);
        /* Nor does it where limits are not looked at. */
        region = map((fl_region_options){.bytes = MIB - 1000, .shared = 1, .unchecked = 1});
        CHECK(fl_region_resize(region, 2 * MIB, NULL, NULL, &error) == FL_REGION_REFUSED, "%s", error.message);
        CHECK(error.errno_value == EFBIG && strstr(error.message, "ulimit -f"), "%s", error.message);
        CHECK(fl_region_bytes(region) == MIB - 1000, "%zu bytes", fl_region_bytes(region));
        fl_region_unmap(region);
        options.unchecked = 1;
        CHECK(fl_region_map(&options, &error) == NULL && error.errno_value == EFBIG, "%s", error.message);
        setrlimit(RLIMIT_FSIZE, &before);
    }
}

static void a_pipe_that_nobody_writes_to_is_refused_at_once(void) {
    char path[] = "/tmp/faultless-regions-XXXXXX", pipe[sizeof path + 5];
    CHECK(mkdtemp(path) != NULL, "mkdtemp: errno %d", errno);
    snprintf(pipe, sizeof pipe, "%s/pipe", path);
    CHECK(mkfifo(pipe, 0600) == 0, "mkfifo: errno %d", errno);
    alarm(20);
    CHECK(fl_region_open(pipe, FL_POPULATE_NOW, NULL) == NULL, "a pipe was mapped");
    alarm(0);
    unlink(pipe);
    rmdir(path);
}

static void guards_and_freezing_stop_writes(void) {
    fl_region *region = map((fl_region_options){.bytes = 2 * MIB, .shared = 1, .name = "guarded"});
    char *data = fl_region_data(region);
    data[0] = 5;
    CHECK(is_forbidden(data + 2 * MIB) && is_forbidden(data - 1), "neighbours can be written");
    CHECK(fl_region_freeze(region, NULL) == 0, "freeze: errno %d", errno);
    CHECK(is_forbidden(data), "a frozen region can be written");
    CHECK(fl_region_resize(region, 4 * MIB, NULL, NULL, NULL) == FL_REGION_ARGUMENT, "a frozen region was resized");
    CHECK(fl_region_thaw(region, NULL) == 0 && !is_forbidden(data), "thawed, yet not writable");
    fl_region_unmap(region);
}

static void sizes_change(void) {
    fl_region *region = map((fl_region_options){.bytes = MIB});
    memset(fl_region_data(region), 3, MIB);
    CHECK(fl_region_resize(region, 20 * MIB, remember, &last_done, NULL) == 0, "grow: errno %d", errno);
    const char *data = fl_region_data(region);
    CHECK(fl_region_bytes(region) == 20 * MIB && data[MIB - 1] == 3 && data[MIB] == 0, "contents");
    CHECK(faults_of_a_search(region) == 0, "what is new was not populated");
    CHECK(fl_region_resize(region, 10, NULL, NULL, NULL) == 0 && fl_region_bytes(region) == 10, "shrink");
    fl_region_unmap(region);
}

static volatile bool mapping_goes_on;
static void *map_and_look(void *nothing) {
    char *own[64];
    while (mapping_goes_on) {
        unsigned char resident;
        for (int i = 0; i < 64; i++) {
            own[i] = mmap(NULL, MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            CHECK(own[i] != MAP_FAILED, "mmap: errno %d", errno);
        }
        for (int i = 0; i < 64; i++) {
            CHECK(mincore(own[i], 4096, &resident) == 0, "unmapped by another thread: errno %d", errno);
            munmap(own[i], MIB);
        }
    }
    return nothing;
}

/* The kernel may have unmapped the place for a region before it refuses to use it; others map there at once. */
static void refusals_unmap_nothing_of_other_threads(void) {
    pthread_t threads[3];
    fl_region_options options = {.bytes = MIB, .populate = FL_POPULATE_BY_USE, .unchecked = 1};
    fl_region *region = map(options);
    memset(fl_region_data(region), 5, MIB);
    mapping_goes_on = true;
    for (int i = 0; i < 3; i++) CHECK(pthread_create(&threads[i], NULL, map_and_look, NULL) == 0, "thread");
    options.bytes = (size_t)1 << 40;
    options.pages = FL_PAGES_HUGE_REQUIRED;
    int rounds = 0;
    /* No machine for tests has this much; where the kernel gives it all the same there is nothing to be refused. */
    while (rounds < 1000 && fl_region_resize(region, options.bytes, NULL, NULL, NULL) != 0) {
        CHECK(fl_region_map(&options, NULL) == NULL, "a TiB of huge pages");
        rounds++;
    }
    mapping_goes_on = false;
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    CHECK(((char *)fl_region_data(region))[MIB - 1] == 5, "contents");
    CHECK(rounds == 0 || fl_region_bytes(region) == MIB, "%zu bytes after %d refusals", fl_region_bytes(region), rounds);
    fl_region_unmap(region);
}

/* What a child says by its exit status. */
static int status_of(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, 0) == child, "waitpid: errno %d", errno);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* The kernel asks for CAP_IPC_LOCK in its first user namespace, and root in a container of an ordinary user has it in another. */
static void root_of_a_namespace_may_lock_no_more_than_others(void) {
    pid_t child = fork();
    if (child == 0) {
        struct rlimit small = {64 * KIB, 64 * KIB};
        if (unshare(CLONE_NEWUSER) != 0 || setrlimit(RLIMIT_MEMLOCK, &small) != 0) {
            say_skipped("no user namespace can be made");
            _exit(0);
        }
        fl_region_options options = {.bytes = MIB, .locked = 1};
        fl_region_error error;
        CHECK(fl_region_map(&options, &error) == NULL && error.code == FL_REGION_LIMIT_LOCKED_MEMORY, "%s", error.message);
        _exit(0);
    }
    CHECK(status_of(child) == 0, "the child failed");
}

/* The kernel's figure of locked bytes is a share of them where others map the file. */
static void what_is_locked_is_locked_however_many_map_it(void) {
    fl_region_options options = {.bytes = 4 * MIB, .shared = 1, .locked = 1};
    fl_region_error error;
    fl_region *region = fl_region_map(&options, &error), *opened;
    if (region == NULL && error.code == FL_REGION_LIMIT_LOCKED_MEMORY) {
        say_skipped("4 MiB may not be locked");
        return;
    }
    CHECK(region != NULL, "%s", error.message);
    CHECK((opened = fl_region_open_descriptor(fl_region_descriptor(region), FL_POPULATE_NOW, &error)) != NULL, "%s", error.message);
    fl_region_pages look, other;
    CHECK(fl_region_look(region, &look) == 0 && look.locked_bytes == 4 * MIB, "%zu locked", look.locked_bytes);
    CHECK(fl_region_look(opened, &other) == 0 && other.locked_bytes == 0, "%zu locked", other.locked_bytes);
    fl_region_unmap(opened);
    fl_region_unmap(region);
}

static void other_processes_see_shared_regions(void) {
    fl_region *region = map((fl_region_options){.bytes = 3 * MIB + 5, .shared = 1});
    ((char *)fl_region_data(region))[3 * MIB + 4] = 77;
    CHECK(fl_region_freeze(region, NULL) == 0, "freeze: errno %d", errno);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", getpid(), fl_region_descriptor(region));
    pid_t child = fork();
    if (child == 0) {
        fl_region_error error;
        CHECK(fl_region_populate(region, NULL, NULL, &error) == 0 && faults_of_a_search(region) == 0, "the child's region faults");
        fl_region_unmap(region); /* the child's own mapping alone */
        fl_region *opened = fl_region_open(path, FL_POPULATE_NOW, &error);
        CHECK(opened != NULL, "%s", error.message);
        CHECK(fl_region_bytes(opened) == 3 * MIB + 5, "%zu bytes", fl_region_bytes(opened));
        CHECK(faults_of_a_search(opened) == 0, "an opened region faults");
        CHECK(fl_region_thaw(opened, &error) == FL_REGION_ARGUMENT, "an opened region was thawed");
        CHECK(fl_region_resize(opened, 1, NULL, NULL, &error) == FL_REGION_ARGUMENT, "an opened region was resized");
        CHECK(strstr(error.message, "can only be read"), "%s", error.message);
        _exit(((char *)fl_region_data(opened))[3 * MIB + 4]);
    }
    CHECK(status_of(child) == 77, "the child saw other data");
    CHECK(faults_of_a_search(region) == 0 && ((char *)fl_region_data(region))[3 * MIB + 4] == 77, "the parent's region");
    fl_region_unmap(region);
}

static void only_the_owner_seals_the_file(void) {
    fl_region *region = map((fl_region_options){.bytes = MIB, .shared = 1});
    fl_region *opened = fl_region_open_descriptor(fl_region_descriptor(region), FL_POPULATE_NOW, NULL);
    CHECK(opened != NULL && fl_region_freeze(opened, NULL) == 0, "an opened region is read-only already: errno %d", errno);
    fl_region_unmap(opened);
    fl_region_error error;
    CHECK(fl_region_resize(region, 2 * MIB, NULL, NULL, &error) == 0, "%s", error.message);
    fl_region_unmap(region);
}

static pthread_t first_thread;
static void *look_alone(void *nothing) {
    pthread_join(first_thread, NULL);
    /* It is a zombie once the kernel has ended it, too. */
    char stat[256], *state;
    do read_text("/proc/self/stat", stat, sizeof stat);
    while ((state = strrchr(stat, ')')) && state[2] != 'Z');
    fl_region *region = map((fl_region_options){.bytes = 4 * MIB});
    fl_region_pages look;
    CHECK(fl_region_look(region, &look) == 0 && look.resident_bytes == 4 * MIB, "not seen");
    struct rlimit small = {GIB, GIB};
    CHECK(setrlimit(RLIMIT_AS, &small) == 0, "setrlimit: errno %d", errno);
    fl_region_options options = {.bytes = GIB - 4 * MIB, .populate = FL_POPULATE_BY_USE};
    fl_region_error error;
    CHECK(fl_region_map(&options, &error) == NULL && error.code == FL_REGION_LIMIT_ADDRESS_SPACE, "%s", error.message);
    _exit(0);
    return nothing;
}

/* Whatever the limit on addresses leaves, growth comes or the limit is named. */
static void growth_that_addresses_are_lacking_for_names_their_limit(void) {
    fl_region *region = map((fl_region_options){.bytes = 8 * MIB});
    for (size_t limit = 8 * MIB; limit < 96 * MIB; limit += MIB) {
        pid_t child = fork();
        if (child == 0) {
            fl_region_error error = {0};
            struct rlimit addresses = {limit, limit};
            CHECK(setrlimit(RLIMIT_AS, &addresses) == 0, "setrlimit: errno %d", errno);
            int code = fl_region_resize(region, 16 * MIB, NULL, NULL, &error);
            CHECK(code == 0 || code == FL_REGION_LIMIT_ADDRESS_SPACE, "limit %zu: %s", limit, error.message);
            _exit(0);
        }
        CHECK(status_of(child) == 0, "the child failed");
    }
    fl_region_unmap(region);
}

/* /proc/self is that of the first thread, and then tells nothing of the process's memory. */
static void a_process_whose_first_thread_ended_is_known(void) {
    pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        first_thread = pthread_self();
        CHECK(pthread_create(&thread, NULL, look_alone, NULL) == 0, "thread");
        pthread_exit(NULL);
    }
    CHECK(status_of(child) == 0, "the child failed");
}

static void forks_while_populating_end_well(void) {
    for (int round = 0; round < 10; round++) {
        fl_region *region =
            map((fl_region_options){.bytes = 64 * MIB, .populate = FL_POPULATE_IN_BACKGROUND, .threads = 2});
        pid_t child = fork();
        if (child == 0) {
            /* The threads are the parent's: nothing to wait for, whatever was populated. */
            int code = fl_region_wait(region, NULL, NULL, NULL);
            CHECK(code == FL_REGION_OK || code == FL_REGION_CANCELLED, "code %d", code);
            CHECK(fl_region_populate(region, NULL, NULL, NULL) == 0, "populate: errno %d", errno);
            CHECK(faults_of_a_search(region) == 0, "the child's region faults");
            fl_region_unmap(region);
            _exit(0);
        }
        if (round % 2) fl_region_cancel(region);
        int code = fl_region_wait(region, NULL, NULL, NULL);
        CHECK(code == FL_REGION_OK || (round % 2 && code == FL_REGION_CANCELLED), "code %d", code);
        size_t done, total;
        fl_region_populated(region, &done, &total);
        CHECK(total == 64 * MIB && (code != 0 || done == total), "%zu of %zu", done, total);
        fl_region_unmap(region);
        CHECK(status_of(child) == 0, "the child failed");
    }
}

/* As on a kernel before Linux 5.14, which has no call for populating: pages are touched instead, in the way that they are used. */
static void pages_are_there_where_the_kernel_has_no_call_for_populating(void) {
    enum { MADV_POPULATE = 22 };
    pid_t child = fork();
    if (child == 0) {
        struct sock_filter filter[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
            BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, MADV_POPULATE, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
        install_filter(filter, COUNT_OF(filter));
        for (int is_shared = 0; is_shared < 2; is_shared++) {
            fl_region *region = map((fl_region_options){.bytes = 8 * MIB, .pages = FL_PAGES_SMALL, .shared = is_shared});
            long faults = faults_of_a_search(region);
            CHECK(faults == 0, "%ld faults of a search, shared: %d", faults, is_shared);
            volatile char *data = fl_region_data(region);
            long before = minor_faults();
            for (size_t at = 0; at < 8 * MIB; at += 4096) data[at] = 1;
            CHECK(minor_faults() == before, "%ld faults of writes, shared: %d", minor_faults() - before, is_shared);
            fl_region_unmap(region);
        }
        _exit(0);
    }
    CHECK(status_of(child) == 0, "the child failed");
}

int main(void) {
    one_piece_of_work_takes_no_other_thread();
    searches_take_no_fault();
    huge_pages_for_the_asking_are_not_said_to_be_kept_away();
    errors_speak();
    a_pipe_that_nobody_writes_to_is_refused_at_once();
    guards_and_freezing_stop_writes();
    sizes_change();
    growth_that_addresses_are_lacking_for_names_their_limit();
    refusals_unmap_nothing_of_other_threads();
    root_of_a_namespace_may_lock_no_more_than_others();
    what_is_locked_is_locked_however_many_map_it();
    other_processes_see_shared_regions();
    only_the_owner_seals_the_file();
    a_process_whose_first_thread_ended_is_known();
    forks_while_populating_end_well();
    pages_are_there_where_the_kernel_has_no_call_for_populating();
    return 0;
}
