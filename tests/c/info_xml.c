/* malloc_info writes well-formed XML, also into a stream that itself allocates, and refuses options. */
#include "check.h"
#include <ctype.h>

/* Elements nest, names are names, attributes are quoted, one root, no stray characters. */
static void check_xml(const char *text) {
    char stack[32][64];
    int depth = 0, roots = 0;
    for (const char *at = text; *at;) {
        if (*at != '<') {
            CHECK(depth > 0 || isspace((unsigned char)*at), "text outside the root element: '%.20s'", at);
            CHECK(*at != '>' && *at != '&', "a bare '%c'", *at);
            at++;
            continue;
        }
        at++;
        if (*at == '?') {
            at = strstr(at, "?>");
            CHECK(at != NULL && depth == 0, "bad declaration");
            at += 2;
            continue;
        }
        bool closing = *at == '/';
        at += closing;
        char name[64];
        size_t used = 0;
        while (isalnum((unsigned char)*at) || (*at && strchr("_-:.", *at))) {
            CHECK(used < sizeof name - 1, "an element's name is too long");
            name[used++] = *at++;
        }
        name[used] = 0;
        CHECK(used > 0 && !isdigit((unsigned char)name[0]), "bad element name at '%.20s'", at);
        bool empty = false;
        while (*at && *at != '>') {
            if (isspace((unsigned char)*at)) {
                at++;
                continue;
            }
            if (at[0] == '/' && at[1] == '>') {
                empty = true;
                at++;
                continue;
            }
            CHECK(!closing, "attribute in a closing tag of %s", name);
            const char *equals = strchr(at, '=');
            CHECK(equals && equals > at && (equals[1] == '"' || equals[1] == '\''), "bad attribute in %s: '%.20s'", name, at);
            for (const char *c = at; c < equals; c++) CHECK(isalnum((unsigned char)*c) || strchr("_-:.", *c), "bad attribute name in %s", name);
            at = strchr(equals + 2, equals[1]);
            CHECK(at != NULL, "an attribute of %s is not closed", name);
            at++;
        }
        CHECK(*at == '>', "the tag %s is not closed", name);
        at++;
        if (closing) {
            CHECK(depth > 0 && strcmp(stack[depth - 1], name) == 0, "</%s> closes %s", name, depth ? stack[depth - 1] : "nothing");
            depth--;
        } else if (!empty) {
            CHECK(depth < 32, "nested too deep");
            if (depth == 0) CHECK(++roots == 1 && strcmp(name, "malloc") == 0, "the root element is %s", name);
            strcpy(stack[depth++], name);
        }
    }
    CHECK(depth == 0 && roots == 1, "%d elements left open, %d roots", depth, roots);
}

/* Free blocks by size, ascending, and each in one range. */
static void check_sizes(const char *text) {
    unsigned long behind = 0, from, to;
    for (const char *at = text; (at = strstr(at, "<size from=\"")) != NULL; at++, behind = to) {
        CHECK(sscanf(at, "<size from=\"%lu\" to=\"%lu\"", &from, &to) == 2, "no range in '%.40s'", at);
        CHECK(from > behind && to >= from, "%lu to %lu follows %lu", from, to, behind);
    }
}

int main(void) {
    static void *block[5000];
    for (int round = 0; round < 20; round++) {
        for (size_t i = 0; i < COUNT_OF(block); i++) {
            size_t size = i * (round + 1) % 50000;
            block[i] = i % 10 == 0 ? aligned_alloc(256, size & ~(size_t)255) : malloc(size);
        }
        char *text = NULL;
        size_t size = 0;
        FILE *stream = open_memstream(&text, &size);
        errno = 0;
        int answer = malloc_info(0, stream);
        CHECK(answer == 0, "malloc_info(0) returned %d, errno %d", answer, errno);
        fclose(stream);
        CHECK(size > 20 && strlen(text) == size, "malloc_info wrote %zu bytes", size);
        CHECK(strncmp(text, "<malloc version=\"", 17) == 0, "malloc_info begins with '%.20s'", text);
        check_xml(text);
        check_sizes(text);
        free(text);
        for (size_t i = 0; i < COUNT_OF(block); i++) free(block[i]);
    }
    errno = 0;
    int answer = malloc_info(1, stdout);
    CHECK(answer == EINVAL || (answer == -1 && errno == EINVAL), "malloc_info(1) returned %d, not EINVAL", answer);
    return 0;
}
