// operator new until std::bad_alloc, under a limit set before the start; containers survive it.
#include "check.h"
#include <map>
#include <new>
#include <string>
#include <vector>

int main() {
    size_t first = 0;
    for (int round = 0; round < 4; round++) {
        std::vector<std::string> texts;
        std::map<int, std::vector<int>> map;
        size_t count = 0;
        bool caught = false;
        try {
            for (;; count++) {
                texts.push_back(std::string(5000, 'a' + count % 26));
                map[count].assign(100, count);
            }
        } catch (const std::bad_alloc &) {
            caught = true;
        }
        CHECK(caught && count > 1000, "bad_alloc after %zu objects", count);
        if (round == 0) first = count;
        CHECK(count >= first * 9 / 10, "the first time %zu objects, later only %zu", first, count);
        for (size_t i = 0; i < count; i++) {
            CHECK(texts[i].size() == 5000 && texts[i][0] == char('a' + i % 26) && texts[i][4999] == texts[i][0], "text %zu changed", i);
            CHECK(map[i].size() == 100 && map[i][99] == (int)i, "vector %zu changed", i);
        }
    }
    return 0;
}
