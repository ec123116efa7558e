//! gcc and g++: the objects they make under the library are those they make without it.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::failure::{At, Result, expect_equal, wrong};
use crate::sandbox::{Sandbox, tool};
use crate::sequence::Sequence;

const C_FUNCTIONS: u64 = 2_000;
const CXX_STRUCTURES: u64 = 12;

/// A C file of thousands of functions.
pub fn gcc(sandbox: &mut Sandbox) -> Result<()> {
    let gcc = tool("gcc", "gcc")?;
    let (text, sum) = c_text();
    sandbox.write("large.c", text)?;
    same_object(sandbox, &gcc, &["-O2", "-g", "-c", "large.c"], "cc1")?;
    sandbox.job(&gcc).args(["large.o", "-o", "large"]).proven_in("collect2").run()?;
    let done = sandbox.job(sandbox.path("large")).run()?;
    expect_equal("sum of the C functions", &format!("{sum}\n"), &done.text())
}

/// A C++ file of many containers of many types.
pub fn gxx(sandbox: &mut Sandbox) -> Result<()> {
    let gxx = tool("g++", "g++")?;
    sandbox.write("large.cc", cxx_text())?;
    same_object(sandbox, &gxx, &["-std=c++17", "-O2", "-g", "-c", "large.cc"], "cc1plus")?;
    sandbox.job(&gxx).args(["large.o", "-pthread", "-o", "large"]).proven_in("collect2").run()?;
    let done = sandbox.job(sandbox.path("large")).proven_in("large").run()?;
    let alone = sandbox.plain_job(sandbox.path("large")).run()?;
    expect_equal("output of the C++ program", &alone.text(), &done.text())?;
    expect_equal("last line", "ok", done.text().lines().last().unwrap_or_default())
}

/// Compiles with and without the library and compares `large.o`.
fn same_object(sandbox: &Sandbox, compiler: &Path, words: &[&str], inner: &str) -> Result<()> {
    let object = sandbox.path("large.o");
    sandbox.plain_job(compiler).args(words).run()?;
    let expected = fs::read(&object).at(&object)?;
    fs::remove_file(&object).at(&object)?;
    sandbox.job(compiler).args(words).proven_in(inner).proven_in("as").run()?;
    if fs::read(&object).at(&object)? == expected { Ok(()) } else { wrong("the objects differ") }
}

/// The file and the number that its program prints.
fn c_text() -> (String, u64) {
    let mut text = "#include <stdint.h>\n#include <stdio.h>\n\n".to_owned();
    let mut sequence = Sequence::new(1);
    let mut sum = 0_u64;
    for function in 0..C_FUNCTIONS {
        let (factor, addend, rounds) =
            (sequence.below(1 << 30) | 1, sequence.below(1 << 30), 3 + sequence.below(5));
        let _ = write!(
            text,
            "__attribute__((noinline)) uint64_t f{function}(uint64_t x) {{\n    uint64_t a[{rounds}];\n    \
             for (int i = 0; i < {rounds}; i++) {{ x = x * {factor}u + {addend}u; a[i] = x >> (x & 7); }}\n    \
             for (int i = 0; i < {rounds}; i++) x ^= (x & 1) ? a[i] : a[({rounds} - 1) - i];\n    return x;\n}}\n"
        );
        let mut x = function;
        let mut kept = Vec::new();
        for _ in 0..rounds {
            x = x.wrapping_mul(factor).wrapping_add(addend);
            kept.push(x >> (x & 7));
        }
        for index in 0..kept.len() {
            x ^= if x & 1 == 1 { kept[index] } else { kept[kept.len() - 1 - index] };
        }
        sum = sum.wrapping_add(x);
    }
    text += "\nint main(void) {\n    uint64_t sum = 0;\n";
    for function in 0..C_FUNCTIONS {
        let _ = writeln!(text, "    sum += f{function}({function});");
    }
    text += "    printf(\"%llu\\n\", (unsigned long long)sum);\n}\n";
    (text, sum)
}

fn cxx_text() -> String {
    let mut text = "#include <algorithm>\n#include <deque>\n#include <functional>\n#include <iostream>\n#include <map>\n\
        #include <memory>\n#include <regex>\n#include <set>\n#include <string>\n#include <thread>\n\
        #include <unordered_map>\n#include <variant>\n#include <vector>\n\n"
        .to_owned();
    for structure in 0..CXX_STRUCTURES {
        let _ = write!(
            text,
            "struct S{structure} {{ int id; std::string name; bool operator<(const S{structure}& o) const \
             {{ return name < o.name; }} }};\n\
             static long work{structure}() {{\n    std::map<std::string, std::vector<S{structure}>> map;\n    \
             std::unordered_map<int, std::unique_ptr<S{structure}>> owned;\n    \
             std::set<std::shared_ptr<S{structure}>> shared;\n    \
             std::deque<std::variant<int, std::string, S{structure}>> queue;\n    \
             for (int i = 0; i < 3000; i++) {{\n        \
             S{structure} s{{i, std::string(i % 90, char('a' + i % 26)) + std::to_string(i)}};\n        \
             map[s.name.substr(0, 3)].push_back(s);\n        \
             owned[i] = std::make_unique<S{structure}>(s);\n        \
             shared.insert(std::make_shared<S{structure}>(s));\n        \
             if (i % 2) queue.emplace_back(s); else queue.emplace_front(s.name);\n        \
             if (i % 5 == 0) owned.erase(i / 2);\n    }}\n    \
             for (auto& [key, list] : map) std::stable_sort(list.begin(), list.end());\n    \
             std::function<long(long)> add = [&](long n) {{ return n + long(owned.size() + shared.size()); }};\n    \
             long sum = {structure};\n    \
             for (auto& [key, list] : map) for (auto& s : list) sum = sum * 31 % 1000003 + s.id + long(key.size());\n    \
             for (auto& item : queue) sum += long(item.index());\n    return add(sum);\n}}\n"
        );
    }
    text += "\nint main() {\n    std::vector<std::function<long()>> all{";
    (0..CXX_STRUCTURES).for_each(|structure| text += &format!("work{structure}, "));
    text + "};\n    std::vector<long> sums(all.size());\n    std::vector<std::thread> threads;\n    \
        for (size_t t = 0; t < 6; t++) threads.emplace_back([&, t] { for (size_t i = t; i < all.size(); i += 6) sums[i] = all[i](); });\n    \
        for (auto& thread : threads) thread.join();\n    \
        for (size_t i = 0; i < all.size(); i++) { std::cout << sums[i] << \"\\n\"; if (sums[i] != all[i]()) return 1; }\n    \
        std::string text(3000, 'x');\n    \
        if (!std::regex_match(text + \"7\", std::regex(\"(x|y)+[0-9]\"))) return 1;\n    \
        try { std::vector<int>().at(1); return 1; } catch (const std::out_of_range&) { std::cout << \"ok\\n\"; }\n}\n"
}
