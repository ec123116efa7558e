# A C++ compiler on headers and templates.
cat >file.cpp <<'CPP'
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>
template <int N> struct Wide { std::map<std::string, std::vector<Wide<N - 1>>> parts; };
template <> struct Wide<0> { std::unordered_map<std::string, std::shared_ptr<int>> leaf; };
int main() {
    Wide<12> wide;
    std::vector<std::function<int(int)>> steps{[](int i) { return i + 1; }, [](int i) { return i * 2; }};
    std::sort(steps.begin(), steps.end(), [](const auto &a, const auto &b) { return a(1) < b(1); });
    std::cout << wide.parts.size() << steps.size() << "\n";
}
CPP
exec g++ -O1 -c file.cpp -o file.o
