//! `cargo xtask dist`: the copyable static binary, and the library with its glibc baseline checked.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::arguments::Arguments;
use crate::baseline;
use crate::failure::{At, Result, wrong};
use crate::library::{Profile, build};
use crate::sandbox::tool;
use crate::workspace::{cargo, output, succeed, target};

const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// Runs the task.
pub fn run(arguments: Arguments) -> Result<()> {
    arguments.end()?;
    let library = build(Profile::Dist)?;
    println!("{} needs", library.display());
    for (version, symbols) in &baseline::check(&library)? {
        println!("  {version}: {}", symbols.iter().cloned().collect::<Vec<_>>().join(" "));
    }

    let binary = static_binary(&library)?;
    let folder = target()?.join("dist-out");
    fs::create_dir_all(&folder).at(&folder)?;
    for file in [&library, &binary] {
        let copy = folder.join(file.file_name().unwrap_or_default());
        fs::copy(file, &copy).at(file)?;
        println!("{} ({} bytes)", copy.display(), fs::metadata(&copy).at(&copy)?.len());
    }
    succeed(Command::new(folder.join("faultless")).arg("--version"))
}

/// Builds the tool with libc inside. Only its own crate is told so: with the whole workspace told, procedural
/// macros do not build.
fn static_binary(library: &Path) -> Result<std::path::PathBuf> {
    let target = target()?;
    let mut command = cargo();
    command.args([
        "rustc",
        "--package",
        "faultless-cli",
        "--bin",
        "faultless",
        "--profile",
        "dist",
        "--target",
        TRIPLE,
    ]);
    command.arg("--target-dir").arg(&target).env("FAULTLESS_SO", library);
    succeed(command.args(["--", "-C", "target-feature=+crt-static"]))?;
    let binary = target.join(TRIPLE).join("dist/faultless");
    let readelf = tool("readelf", "binutils")?;
    let headers = output(Command::new(readelf).args(["--program-headers", "--wide"]).arg(&binary))?;
    if headers.contains("INTERP") { wrong(format!("{} is not static", binary.display())) } else { Ok(binary) }
}
