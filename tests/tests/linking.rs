//! C and C++ programs that link the installed library: shared through pkg-config, static, fully static, by CMake.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use faultless_tests::library::{build_folder, preload};
use faultless_tests::program::pass_on_skipped;

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("c").join(name)
}

/// Cargo's own search path for libraries is not passed on: a `libfaultless.so` that `cargo build --workspace` left there is no release.
fn run(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_remove("LD_LIBRARY_PATH");
    command
}

fn succeeds(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{stdout}{stderr}", output.status);
    stdout.into_owned()
}

/// Installs once for all tests of this file, with a target folder of its own: Cargo holds the usual one.
fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = build_folder().join("installed");
        let _ = std::fs::remove_dir_all(&prefix);
        succeeds(install(&prefix).env_remove("DESTDIR"));
        prefix
    })
}

/// Installs as somebody who shares nothing by default.
fn install(prefix: &Path) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut install = Command::new("sh");
    install.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    install.args(["-c", "umask 077; exec \"$@\"", "sh"]).arg(cargo);
    install.env("CARGO_TARGET_DIR", build_folder().join("install-target"));
    install.args(["xtask", "install", "--prefix"]).arg(prefix);
    install
}

/// Modes of a folder and of all that lies in it.
fn modes(path: &Path) -> Vec<(PathBuf, u32)> {
    let metadata = path.metadata().expect("what was installed");
    let inside = path.read_dir().into_iter().flatten().flatten().flat_map(|entry| modes(&entry.path()));
    [(path.to_owned(), metadata.permissions().mode() & 0o777)].into_iter().chain(inside).collect()
}

#[test]
fn everybody_may_use_what_was_installed_with_a_umask_of_ones_own() {
    let modes = modes(prefix());
    assert!(modes.len() > 6, "{modes:?}");
    for (path, mode) in modes {
        let is_plain = path.extension().is_some_and(|extension| extension != "so");
        assert_eq!(mode, if is_plain { 0o644 } else { 0o755 }, "{}", path.display());
    }
}

#[test]
fn a_package_is_staged_below_destdir() {
    let stage = build_folder().join("stage");
    let _ = std::fs::remove_dir_all(&stage);
    succeeds(install(prefix()).env("DESTDIR", &stage));
    let staged = stage.join(prefix().strip_prefix("/").unwrap());
    assert_eq!(modes(&staged).len(), modes(prefix()).len(), "{}", staged.display());
}

fn is_installed(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        faultless_skipped::skipped(format_args!("{program} is not installed"));
    }
    found
}

/// Compiles a program with the installed header and runs it.
fn builds_and_runs(compiler: &str, file: &str, name: &str, libraries: &[&OsStr]) {
    let executable = build_folder().join(name);
    let include = prefix().join("include");
    let mut compile = Command::new(compiler);
    compile.args(["-O1", "-w", "-fno-builtin", "-pthread", "-I"]).arg(include).arg(source(file));
    succeeds(compile.arg("-o").arg(&executable).args(libraries));
    pass_on_skipped(&succeeds(run(&executable).env("LD_LIBRARY_PATH", prefix().join("lib"))));
}

#[test]
fn a_c_program_links_the_shared_library_that_pkg_config_names() {
    if !is_installed("pkg-config") {
        return;
    }
    let mut ask = Command::new("pkg-config");
    ask.env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig")).args(["--cflags", "--libs", "faultless"]);
    let flags = succeeds(&mut ask);
    let flags: Vec<&OsStr> = flags.split_whitespace().map(OsStr::new).collect();
    builds_and_runs("cc", "uses_header.c", "uses-shared", &flags);
    let as_needed = [&[OsStr::new("-Wl,--as-needed")], &flags[..]].concat();
    builds_and_runs("cc", "asks_libc.c", "asks-libc-shared", &as_needed);
    let fully_static = [&[OsStr::new("-static")], &flags[..]].concat();
    builds_and_runs("cc", "asks_libc.c", "asks-libc-static", &fully_static);
    // As Meson does: it looks for the library itself, names its file, and drops the search path.
    let library = prefix().join("lib/libfaultless.so");
    let of_meson = as_needed.iter().filter(|flag| !flag.to_string_lossy().starts_with("-L"));
    let of_meson = of_meson.map(|&flag| if flag == "-lfaultless" { library.as_os_str() } else { flag });
    builds_and_runs("cc", "asks_libc.c", "asks-libc-meson", &of_meson.collect::<Vec<_>>());
}

#[test]
fn programs_link_the_static_library_with_and_without_a_static_libc() {
    let archive = prefix().join("lib/libfaultless.a").into_os_string();
    builds_and_runs("cc", "uses_header.c", "uses-static", &[&archive]);
    builds_and_runs("c++", "uses_header.cpp", "uses-static-cpp", &[&archive]);
    builds_and_runs("cc", "uses_header.c", "uses-fully-static", &[&archive, OsStr::new("-static")]);
    let whole = ["-Wl,--whole-archive".as_ref(), archive.as_os_str(), "-Wl,--no-whole-archive".as_ref()];
    builds_and_runs("cc", "uses_header.c", "uses-all-members", &whole);
}

#[test]
fn a_program_of_musl_is_told_that_the_preloaded_library_is_not_for_it() {
    let Some(library) = preload() else { return };
    if !is_installed("musl-gcc") {
        return;
    }
    let [code, program] = ["of_musl.c", "of-musl"].map(|name| build_folder().join(name));
    std::fs::write(&code, "int main(void) { return 0; }").expect("written");
    succeeds(Command::new("musl-gcc").arg("-o").arg(&program).arg(code));
    succeeds(&mut run(&program));
    let output = run(&program).env("LD_PRELOAD", library).output().expect("starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("_IO_list_lock: symbol not found"), "{}: {said}", output.status);
    assert_eq!(output.status.code(), Some(127), "{said}");
}

#[test]
fn the_header_may_come_before_those_of_a_c_library_that_declares_sized_frees() {
    let archive = prefix().join("lib/libfaultless.a");
    let newer = source("newer_glibc");
    let words = [archive.as_os_str(), OsStr::new("-isystem"), newer.as_os_str()];
    let words = [&words[..], &["-include", "faultless.hpp"].map(OsStr::new)].concat();
    builds_and_runs("c++", "uses_header.cpp", "uses-header-first", &words);
}

#[test]
fn the_headers_compile_without_a_warning_from_c99_and_cpp11_on() {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/malloc/include");
    let c = ["c99", "c11"].map(|standard| ("cc", "regions.c", standard));
    let cpp = ["c++11", "c++14", "c++17", "c++20"].map(|standard| ("c++", "regions.cpp", standard));
    for (compiler, file, standard) in c.into_iter().chain(cpp) {
        let mut compile = Command::new(compiler);
        compile.args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-c", "-o", "/dev/null", "-I"]);
        succeeds(compile.arg(&include).arg(format!("-std={standard}")).arg(source(file)));
    }
}

fn rust_compiler() -> Command {
    Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
}

/// A library of Rust, made without Cargo: the heap depends on nothing.
fn rustc(kind: &str, name: &str, file: &Path, uses: &[&OsStr]) -> PathBuf {
    let ending = match kind {
        "staticlib" => "a",
        "dylib" => "so",
        rlib => rlib,
    };
    let library = build_folder().join(format!("lib{name}.{ending}"));
    let mut compile = rust_compiler();
    compile.args(["-O", "-C", "panic=abort", "--crate-type", kind, "--crate-name", name]);
    succeeds(compile.args(uses).arg("-o").arg(&library).arg(file));
    library
}

#[test]
fn a_program_has_the_static_library_and_a_rust_library_with_an_allocator_of_its_own() {
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/heap/src/lib.rs");
    let heap = rustc("rlib", "faultless_heap", &crate_root, &[OsStr::new("--edition=2024")]);
    let mut uses = OsStr::new("faultless_heap=").to_owned();
    uses.push(heap);
    let uses = [OsStr::new("--edition=2021"), OsStr::new("--extern"), &uses];
    let owner = rustc("staticlib", "rust_owner", &source("rust_owner.rs"), &uses);
    let archive = prefix().join("lib/libfaultless.a");
    for (name, first, second) in [("rust-first", &owner, &archive), ("rust-second", &archive, &owner)] {
        builds_and_runs("cc", "rust_owner.c", name, &[first.as_os_str(), second.as_os_str()]);
    }
}

#[test]
fn a_program_with_the_static_library_takes_nothing_from_a_shared_library_of_rust() {
    let words = ["--edition=2021", "-Cpanic=unwind", "-Cprefer-dynamic"].map(OsStr::new);
    let library = rustc("dylib", "rust_dylib", &source("rust_dylib.rs"), &words);
    let folder = succeeds(rust_compiler().args(["--print", "target-libdir"]));
    let of_rust = format!("-Wl,-rpath,{}", folder.trim());
    let ours = format!("-Wl,-rpath,{}", build_folder().display());
    let archive = prefix().join("lib/libfaultless.a");
    // What is found by one path is for the libraries of libraries, too.
    let paths = [OsStr::new("-Wl,--disable-new-dtags"), OsStr::new(&of_rust), OsStr::new(&ours)];
    let libraries = [&[archive.as_os_str(), library.as_os_str()], &paths[..]].concat();
    builds_and_runs("cc", "rust_dylib.c", "rust-dylib", &libraries);
}

#[test]
fn cpp_programs_link_the_static_library_whatever_else_they_link_or_replace() {
    let archive = prefix().join("lib/libfaultless.a").into_os_string();
    for (number, flag) in ["-static", "-static-pie", "-static-libstdc++", "-pthread"].into_iter().enumerate()
    {
        let name = format!("static-new-{number}");
        builds_and_runs("c++", "static_new.cpp", &name, &[&archive, OsStr::new(flag)]);
    }
    builds_and_runs("c++", "own_new.cpp", "static-own-new", &[&archive]);
}

/// Where libc is shared, it tells how much of a stack they take.
#[test]
fn a_static_program_has_a_purger_however_much_of_a_stack_thread_local_variables_take() {
    let archive = prefix().join("lib/libfaultless.a");
    let words = [archive.as_os_str(), OsStr::new("-static"), OsStr::new("-DTHREAD_LOCAL=2000000")];
    builds_and_runs("cc", "much_thread_local.c", "much-thread-local", &words);
}

/// Where libc is shared, its own locks hold up who ends until the fork is over.
#[test]
fn a_static_program_that_ends_while_a_thread_forks_for_seconds_reports() {
    let program = build_folder().join("exit-while-forking");
    let archive = prefix().join("lib/libfaultless.a");
    let mut compile = Command::new("cc");
    compile
        .args(["-O1", "-w", "-static", "-pthread", "-o"])
        .arg(&program)
        .arg(source("exit_while_forking.c"));
    succeeds(compile.arg("-Wl,-u,malloc").arg(archive));
    let ended = run(&program).env("FAULTLESS", "stats:exit").output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    pass_on_skipped(&String::from_utf8_lossy(&ended.stdout));
    assert!(ended.status.success() && said.starts_with("faultless statistics"), "{}: {said}", ended.status);
}

/// The linker takes `operator new` from the shared library, and leaves out the one that could throw.
#[test]
fn a_program_with_a_cpp_library_inside_is_told_to_link_the_static_library() {
    let program = build_folder().join("new-cannot-throw");
    let mut compile = Command::new("c++");
    compile
        .args(["-static-libstdc++", "-fno-builtin", "-w", "-o"])
        .arg(&program)
        .arg(source("new_throws.cpp"));
    succeeds(compile.arg("-L").arg(prefix().join("lib")).arg("-lfaultless"));
    let ended = run(&program).env("LD_LIBRARY_PATH", prefix().join("lib")).output().unwrap();
    let complaint = String::from_utf8_lossy(&ended.stderr);
    assert!(
        complaint.contains("(with -static-libstdc++ link libfaultless.a)"),
        "{}: {complaint}",
        ended.status
    );
}

#[test]
fn regions_work_from_c_and_from_cpp() {
    let archive = prefix().join("lib/libfaultless.a").into_os_string();
    let folder = prefix().join("lib");
    let shared = [OsStr::new("-L"), folder.as_os_str(), OsStr::new("-lfaultless")];
    builds_and_runs("cc", "regions.c", "regions-c", &shared);
    builds_and_runs("cc", "regions.c", "regions-c-fully-static", &[&archive, OsStr::new("-static")]);
    for standard in ["-std=c++11", "-std=c++17"] {
        let mut flags = vec![OsStr::new(standard)];
        flags.extend(shared);
        builds_and_runs("c++", "regions.cpp", &format!("regions{standard}"), &flags);
    }
}

/// Builds a project of this workspace anew: CMake refuses the build folder of another checkout.
fn built_by_cmake(project: &str, folder: &str) -> PathBuf {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join(project);
    let build = build_folder().join(folder);
    let mut configure = Command::new("cmake");
    configure.arg("--fresh").arg("-S").arg(project).arg("-B").arg(&build);
    succeeds(configure.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix().display())));
    succeeds(Command::new("cmake").arg("--build").arg(&build));
    build
}

#[test]
fn a_cmake_project_finds_the_package() {
    if !is_installed("cmake") {
        return;
    }
    let build = built_by_cmake("cmake", "cmake-build");
    succeeds(&mut run(build.join("with_shared")));
    succeeds(&mut run(build.join("with_static")));
    succeeds(&mut run(build.join("asks_libc_shared")));
    succeeds(&mut run(build.join("asks_libc_static")));
    succeeds(run(build.join("closed_plugin")).arg(build.join("libclosed_inside.so")));
}

#[test]
fn the_example_of_a_vector_search_finds_the_same_in_vectors_and_in_regions() {
    if !is_installed("cmake") {
        return;
    }
    let build = built_by_cmake("../examples", "examples-build");
    let text = succeeds(run(build.join("vector_search")).args(["16", "4", "8"]));
    let checksums: Vec<&str> =
        text.lines().filter_map(|line| line.split_once("checksum ")).map(|(_, sum)| sum).collect();
    assert!(checksums.len() == 3 && checksums.iter().all(|sum| *sum == checksums[0]), "{text}");
}
