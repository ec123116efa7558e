//! Builds what the tool carries: `libfaultless.so` by a cargo of its own, the demo programs by the C compiler.
//!
//! The nested cargo gets a target folder of its own (the outer one holds the lock of the usual folder and would
//! be waited for without end) and a clean environment (flags meant for the tool must not reach the library).
//! `FAULTLESS_SO=path` takes a library that exists already. Linters and documentation builds embed nothing.

use std::env;
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::slice;

/// What the nested cargo may inherit: where the toolchain and its files are, nothing that changes code.
const INHERITED: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "TMPDIR",
    "LANG",
    "LD_LIBRARY_PATH",
    "NIX_LDFLAGS",
    "SOURCE_DATE_EPOCH",
];

/// Warnings are errors in none of these: the demo must build with any compiler of the last ten years.
const C_FLAGS: &[&str] = &["-O2", "-std=gnu11", "-Wall", "-Wextra"];

/// The recorder stays loaded to the end, and its symbols are those of malloc alone.
const RECORDER_FLAGS: &[&str] = &[
    "-shared",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-builtin",
    "-fasynchronous-unwind-tables",
    "-Wl,-z,nodelete",
    "-Wl,-soname,libfaultless-recorder.so",
];

fn main() {
    if let Err(error) = build() {
        // Cargo shows the standard error of a failed build script; one line says what to do.
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

fn build() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo did not set OUT_DIR")?);
    let manifest =
        PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or("cargo did not set CARGO_MANIFEST_DIR")?);
    let root = manifest.ancestors().nth(2).ok_or("crates/bundle is not inside a workspace")?.to_path_buf();
    watch_inputs();

    let (library, recorder, programs) = if is_analysis_only() {
        (None, None, Vec::new())
    } else {
        let library = match env::var_os("FAULTLESS_SO") {
            Some(path) => given_library(&root, Path::new(&path))?,
            None => build_library(&root, &out)?,
        };
        let recorder = build_recorder(&root.join("crates/recorder"), &out)?;
        (Some(library), Some(recorder), build_programs(&root.join("crates/workloads"), &out)?)
    };
    let text = embedding(library.as_deref(), recorder.as_deref(), &programs)?;
    fs::write(out.join("embedded.rs"), text)?;
    Ok(())
}

/// By relative paths: a build folder that several clones share would otherwise watch the clone that built first.
fn watch_inputs() {
    for path in [
        "Cargo.toml",
        "Cargo.lock",
        "rust-toolchain.toml",
        "crates/heap",
        "crates/malloc",
        "crates/recorder",
        "crates/workloads",
    ] {
        println!("cargo:rerun-if-changed=../../{path}");
    }
    println!("cargo:rerun-if-changed=build.rs");
    for variable in ["FAULTLESS_SO", "CC", "RUSTC_WORKSPACE_WRAPPER", "RA_RUSTC_WRAPPER", "DOCS_RS"] {
        println!("cargo:rerun-if-env-changed={variable}");
    }
}

/// Clippy, rust-analyzer and docs.rs run build scripts but never run the program.
fn is_analysis_only() -> bool {
    let names_clippy = |wrapper: String| wrapper.contains("clippy-driver");
    env::var("RUSTC_WORKSPACE_WRAPPER").is_ok_and(names_clippy)
        || env::var_os("RA_RUSTC_WRAPPER").is_some()
        || env::var_os("DOCS_RS").is_some()
}

fn given_library(root: &Path, path: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let path = root.join(path);
    println!("cargo:rerun-if-changed={}", path.display());
    if path.is_file() {
        Ok(path)
    } else {
        Err(format!("FAULTLESS_SO names {}, which is not a file", path.display()).into())
    }
}

fn build_library(root: &Path, out: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let target_dir = out.join("library");
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root).env_clear();
    for name in INHERITED {
        if let Some(value) = env::var_os(name) {
            cargo.env(name, value);
        }
    }
    cargo.args([
        "build",
        "--package",
        "faultless-malloc",
        "--lib",
        "--profile",
        "dist",
        "--offline",
        "--quiet",
    ]);
    cargo.arg("--target-dir").arg(&target_dir);

    let mut built = target_dir.clone();
    let (host, target) = (env::var("HOST")?, env::var("TARGET")?);
    if host != target {
        // A statically linked tool still preloads a library of the system's own libc.
        let target = target.replace("-musl", "-gnu");
        if host != target {
            cargo.args(["--target", &target]);
            built.push(&target);
        }
    }
    let output = cargo.output().map_err(|error| format!("cannot start {cargo:?}: {error}"))?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        return Err(format!("libfaultless.so did not build ({}):\n{message}", output.status).into());
    }
    Ok(built.join("dist/libfaultless.so"))
}

/// The C files of a folder.
fn sources(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let files = fs::read_dir(folder)?.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let mut sources: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|extension| extension == "c")).collect();
    sources.sort();
    Ok(sources)
}

/// Compiles the recorder into a library to preload.
fn build_recorder(folder: &Path, out: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let library = out.join("libfaultless-recorder.so");
    compile(&sources(folder)?, &library, RECORDER_FLAGS)?;
    Ok(library)
}

/// Compiles every C file of the workloads folders into a dynamically linked program of the same name.
fn build_programs(workloads: &Path, out: &Path) -> Result<Vec<(String, PathBuf)>, Box<dyn Error>> {
    let sources = [sources(workloads)?, sources(&workloads.join("bench"))?].concat();

    fs::create_dir_all(out.join("programs"))?;
    let mut programs = Vec::new();
    for source in sources {
        let name = source.file_stem().ok_or("a C file has no name")?.to_string_lossy().into_owned();
        let program = out.join("programs").join(&name);
        // Demos show functions and lines; of the benchmark's programs nobody asks for them.
        let debug = if source.parent() == Some(workloads) { "-g1" } else { "-g0" };
        // The same bytes wherever it is built.
        let prefix = format!("-fdebug-prefix-map={}=.", workloads.display());
        compile(slice::from_ref(&source), &program, &[debug, &prefix, "-pthread", "-lm"])?;
        programs.push((name, program));
    }
    Ok(programs)
}

fn compile(sources: &[PathBuf], built: &Path, flags: &[&str]) -> Result<(), Box<dyn Error>> {
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".into());
    let mut words = compiler.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or("cc"));
    command.args(words).args(C_FLAGS).arg("-o").arg(built).args(sources).args(flags);
    let output = command.output().map_err(|error| {
        format!(
            "cannot start the C compiler {compiler}: {error}; install one (apt-get install gcc) or set CC"
        )
    })?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    Err(format!("{} did not compile:\n{message}", built.display()).into())
}

fn embedding(
    library: Option<&Path>,
    recorder: Option<&Path>,
    programs: &[(String, PathBuf)],
) -> Result<String, Box<dyn Error>> {
    let mut text = String::new();
    match library {
        Some(path) => {
            let bytes = fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
            writeln!(text, "pub(crate) const LIBRARY: &[u8] = include_bytes!({path:?});")?;
            writeln!(text, "pub(crate) const LIBRARY_HASH: &str = \"{:016x}\";", fnv1a(&bytes))?;
        }
        None => {
            writeln!(text, "pub(crate) const LIBRARY: &[u8] = &[];")?;
            writeln!(text, "pub(crate) const LIBRARY_HASH: &str = \"none\";")?;
        }
    }
    match recorder {
        Some(path) => writeln!(text, "pub(crate) const RECORDER: &[u8] = include_bytes!({path:?});")?,
        None => writeln!(text, "pub(crate) const RECORDER: &[u8] = &[];")?,
    }
    writeln!(text, "pub(crate) const PROGRAMS: &[(&str, &[u8])] = &[")?;
    for (name, path) in programs {
        writeln!(text, "    ({name:?}, include_bytes!({path:?})),")?;
    }
    writeln!(text, "];")?;
    Ok(text)
}

/// FNV-1a, 64 bits: names the library's version in a file name; the contents are compared before use.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
