//! The two programs of `crates/workloads/regions`, compiled, and one run of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::sample::parse;
use crate::failure::{At, Failure, Result, wrong};
use crate::workspace::{c_compiler, output, root, succeed, target, words};

/// Exit status of a program that needs huge pages from the kernel's pool where there are none.
const NO_POOL: i32 = 77;

/// Where jemalloc is installed.
const JEMALLOC: &[&str] = &[
    "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2",
    "/usr/lib64/libjemalloc.so.2",
    "/usr/lib/libjemalloc.so.2",
    "/usr/lib/aarch64-linux-gnu/libjemalloc.so.2",
];

/// The compiled programs and the library.
pub struct Programs {
    /// The program that brings memory in.
    pub populate: PathBuf,
    /// The program that searches a gallery.
    pub gallery: PathBuf,
    /// `libfaultless.so`.
    pub library: PathBuf,
    /// jemalloc, where it is installed.
    pub jemalloc: Option<PathBuf>,
}

/// The key=value pairs that a program printed.
pub type Figures = Vec<(String, f64)>;

impl Programs {
    /// Compiles both.
    pub fn build(library: &Path) -> Result<Self> {
        let folder = target()?.join("regions");
        fs::create_dir_all(&folder).at(&folder)?;
        let sources = root().join("crates/workloads/regions");
        let include = root().join("crates/malloc/include");
        let compile = |mut compiler: Command, source: &str, flags: &[&str]| {
            let program = folder.join(source.split('.').next().unwrap_or(source));
            compiler.args(["-O2", "-pthread"]).args(flags).arg("-I").arg(&include).arg("-o").arg(&program);
            succeed(compiler.arg(sources.join(source)).arg("-ldl"))?;
            Ok(program)
        };
        let cpp = Command::new(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()));
        Ok(Self {
            populate: compile(c_compiler(), "populate.c", &["-std=gnu11"])?,
            gallery: compile(cpp, "gallery.cpp", &["-std=gnu++17"])?,
            library: library.to_owned(),
            jemalloc: JEMALLOC.iter().map(PathBuf::from).find(|path| path.is_file()),
        })
    }

    /// The library's path as an argument.
    pub fn library_text(&self) -> String {
        self.library.display().to_string()
    }
}

/// Runs a program; `None` where it needs huge pages from the pool and there are none.
pub fn run(
    program: &Path,
    arguments: &[String],
    preload: Option<&Path>,
    settings: &[(&str, &str)],
) -> Result<Option<Figures>> {
    let mut command = Command::new(program);
    command.args(arguments).env_remove("LD_PRELOAD").env_remove("FAULTLESS");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("MALLOC_")) {
        command.env_remove(name);
    }
    command.envs(settings.iter().copied());
    if let Some(preload) = preload {
        command.env("LD_PRELOAD", preload);
    }
    let line = words(&command);
    let result =
        command.output().map_err(|error| Failure::Missing(format!("cannot start {line}: {error}")))?;
    if result.status.code() == Some(NO_POOL) {
        return Ok(None);
    }
    if !result.status.success() {
        return wrong(format!("{line}: {}\n{}", result.status, String::from_utf8_lossy(&result.stderr)));
    }
    parse(&String::from_utf8_lossy(&result.stdout)).map(Some)
}

/// The kernel's version, for the head of a table.
pub fn kernel() -> String {
    output(Command::new("uname").arg("-r")).map(|text| text.trim().to_owned()).unwrap_or_default()
}
