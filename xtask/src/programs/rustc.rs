//! rustc: the program it makes under the library is the one it makes without it.
//!
//! The `rustc` executable brings an allocator of its own, which a preload does not replace. The compiler itself is a
//! shared library, so it is started here by a program of two lines that brings none.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::{At, Failure, Result, expect_equal, wrong};
use crate::sandbox::{Sandbox, tool};

const MODULES: u64 = 50;

/// Runs the check.
pub fn run(sandbox: &mut Sandbox) -> Result<()> {
    let rustc = tool("rustc", "rustc")?;
    let driver = driver(sandbox, &rustc)?;
    sandbox.write("large.rs", text())?;
    let words = ["--edition", "2024", "-O", "-g", "large.rs"];
    let expected =
        compile(|| sandbox.plain_job(&driver).args(words).run().map(drop), &sandbox.path("large"))?;
    let under = || sandbox.job(&driver).args(words).proven_in("driver").run().map(drop);
    if compile(under, &sandbox.path("large"))? != expected {
        return wrong("the programs differ");
    }
    let done = sandbox.job(sandbox.path("large")).proven_in("large").run()?;
    let sum: u64 = (0..MODULES).map(|module| (0..2_000).map(|n| n * module % 1_009).sum::<u64>()).sum();
    expect_equal("sum of the modules", &format!("{sum}\n"), &done.text())
}

/// Compiles and returns the program's bytes.
fn compile(run: impl FnOnce() -> Result<()>, program: &Path) -> Result<Vec<u8>> {
    let _ = fs::remove_file(program);
    run()?;
    fs::read(program).at(program)
}

/// Links a program that calls the compiler's entry in `librustc_driver`.
fn driver(sandbox: &Sandbox, rustc: &Path) -> Result<PathBuf> {
    // Two folders of the toolchain are asked for in the workspace, where its pinned version is chosen.
    let root = crate::workspace::root();
    let mut command = sandbox.plain(rustc);
    let home = std::env::var_os("HOME").unwrap_or_default();
    command.current_dir(root).env("HOME", home).args(["--print", "sysroot"]);
    let folder = Path::new(crate::workspace::output(&mut command)?.trim_end()).join("lib");
    let compiler = compiler_library(&folder)?;
    let symbols =
        sandbox.plain_job(tool("nm", "binutils")?).args(["-D", "--defined-only"]).arg(&compiler).run()?;
    let symbols = symbols.text();
    let mut names = symbols.lines().filter_map(|line| line.split_whitespace().last());
    let entry = names.find(|name| name.contains("rustc_driver") && name.ends_with("4main"));
    let missing = || Failure::Missing(format!("{} has no entry", compiler.display()));
    let entry = entry.ok_or_else(missing)?;
    let source =
        format!("extern int entry(void) __asm__(\"{entry}\");\nint main(void) {{ return entry(); }}\n");
    sandbox.write("driver.c", source)?;
    let rpath = format!("-Wl,-rpath,{}", folder.display());
    sandbox.plain_job(tool("gcc", "gcc")?).args(["driver.c", "-o", "driver", &rpath]).arg(&compiler).run()?;
    Ok(sandbox.path("driver"))
}

fn compiler_library(folder: &Path) -> Result<PathBuf> {
    let files = fs::read_dir(folder).at(folder)?.flatten().map(|entry| entry.path());
    let is_compiler = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("librustc_driver"))
    };
    files.into_iter().find(is_compiler).ok_or_else(|| {
        Failure::Missing(format!(
            "no librustc_driver in {}: the compiler cannot be preloaded",
            folder.display()
        ))
    })
}

fn text() -> String {
    let mut text = String::new();
    for module in 0..MODULES {
        let _ = write!(
            text,
            "mod m{module} {{\n    use std::collections::{{BTreeMap, HashMap}};\n    #[derive(Debug, Clone, PartialEq, PartialOrd, Hash)]\n    \
             pub enum Shape {{ Point(u64), Line {{ from: u64, to: u64 }}, Named(String, Vec<u64>) }}\n    \
             pub trait Size {{ fn size(&self) -> u64; }}\n    impl Size for Shape {{\n        \
             fn size(&self) -> u64 {{ match self {{ Shape::Point(n) => *n, Shape::Line {{ from, to }} => to - from, Shape::Named(_, list) => list.iter().sum() }} }}\n    }}\n    \
             pub fn sum() -> u64 {{\n        let shapes: Vec<Shape> = (0..2000).map(|n| {{ let v = n * {module} % 1009; match n % 3 {{ 0 => Shape::Point(v), 1 => Shape::Line {{ from: n, to: n + v }}, _ => Shape::Named(format!(\"{{n:?}}\"), vec![v / 2, v - v / 2]) }} }}).collect();\n        \
             let map: HashMap<usize, Shape> = shapes.iter().cloned().enumerate().collect();\n        \
             let tree: BTreeMap<String, &Shape> = map.iter().map(|(n, shape)| (format!(\"{{n:05}}{{shape:?}}\"), shape)).collect();\n        \
             let all: Box<dyn Iterator<Item = u64>> = Box::new(tree.values().map(|shape| shape.size()));\n        all.sum()\n    }}\n}}\n"
        );
    }
    text += "fn main() {\n    let sums: Vec<fn() -> u64> = vec![";
    (0..MODULES).for_each(|module| text += &format!("m{module}::sum, "));
    text + "];\n    let threads: Vec<_> = sums.into_iter().map(std::thread::spawn).collect();\n    \
        println!(\"{}\", threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>());\n}\n"
}
