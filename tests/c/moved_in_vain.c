/* Beside nearly as many mappings as a process may have, a block takes over the pages of free pieces until no more can be moved: what was
 * moved by then is given back when the block is, as all else. The argument says how the block comes into being. */
#include "mappings.h"

enum { LAST = 48, PIECES = 40 };

int main(int argc, char **argv) {
    static char *piece[PIECES];
    bool grows = argc == 2 && strcmp(argv[1], "realloc") == 0;
    size_t start = rss_bytes();
    char *block = grows ? malloc(40 * MIB) : NULL;
    if (grows) memset(block, 1, 40 * MIB);
    for (int i = 0; i < PIECES; i++) {
        piece[i] = malloc(8 * MIB);
        CHECK(piece[i] != NULL && malloc(100 * KIB) != NULL, "no memory: errno %d", errno);
        memset(piece[i], 1, 8 * MIB);
    }
    struct mappings used = use_up_mappings();
    for (size_t room = 0; room < LAST; room += 4) {
        pid_t child = fork();
        if (child == 0) {
            leave_room(used, room);
            for (int i = 0; i < PIECES; i++) free(piece[i]);
            char *large = grows ? realloc(block, 300 * MIB) : malloc(300 * MIB);
            munmap(used.pages, used.bytes);
            if (grows) CHECK((large ? large : block)[40 * MIB - 1] == 1, "room for %zu mappings: the end of the block is lost", room);
            free(large ? large : block);
            malloc_trim(0);
            CHECK(rss_bytes() < start + 16 * MIB, "room for %zu mappings: %zu MiB are left when all is freed", room, rss_bytes() / MIB);
            _exit(0);
        }
        expect_success(child, "a block that takes over what is free");
    }
    return 0;
}
