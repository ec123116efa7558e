/* posix_spawn, system, popen and vfork with busy threads; the children run under the same library. */
#include "check.h"
#include <pthread.h>
#include <spawn.h>

extern char **environ;
static bool stop;
static void *busy(void *argument) {
    uint64_t random = (uintptr_t)argument + 1;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) free(malloc(random_size(&random, 1, 50000)));
    return NULL;
}

int main(int argc, char **argv) {
    if (argc > 1) { /* as the child */
        for (int i = 0; i < 2000; i++) free(malloc(i * 10));
        return 0;
    }
    alarm(100);
    pthread_t thread[3];
    for (uintptr_t i = 0; i < 3; i++) pthread_create(&thread[i], NULL, busy, (void *)i);
    char *arguments[] = {argv[0], "child", NULL};
    for (int i = 0; i < 40; i++) {
        pid_t pid;
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        for (int k = 0; k < 10; k++) posix_spawn_file_actions_addopen(&actions, 40 + k, "/dev/null", O_RDONLY, 0);
        CHECK(posix_spawn(&pid, argv[0], &actions, NULL, arguments, environ) == 0, "posix_spawn failed");
        posix_spawn_file_actions_destroy(&actions);
        expect_success(pid, "posix_spawn");
        pid = vfork();
        if (pid == 0) {
            execv(argv[0], arguments);
            _exit(9);
        }
        expect_success(pid, "vfork and exec");
    }
    for (int i = 0; i < 10; i++) {
        CHECK(system("exit 0") == 0, "system failed");
        FILE *f = popen("echo hello", "r");
        char line[100] = "";
        CHECK(f && fgets(line, sizeof line, f) && strcmp(line, "hello\n") == 0, "popen gave '%s'", line);
        CHECK(pclose(f) == 0, "pclose failed");
    }
    stop = true;
    for (int i = 0; i < 3; i++) pthread_join(thread[i], NULL);
    return 0;
}
