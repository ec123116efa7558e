//! From the sources of a peer to its shared library.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::sources::{Sources, workspace};
use crate::failure::{At, Result, wrong};
use crate::workspace::{cargo, output};

/// How a peer becomes a shared library.
pub enum Recipe {
    /// The crate's build script compiles it into an archive, which the linker turns into a library that shows what
    /// `bench/peers/exports.map` lists.
    Archive {
        /// For the C or C++ compiler, behind the build script's own; `@PEERS@` is the folder `bench/peers`.
        flags: &'static str,
    },
    /// A target of the authors' own CMake file that is a shared library.
    Cmake {
        /// Where in the crate the file is.
        folder: &'static str,
        target: &'static str,
        options: &'static [&'static str],
    },
}

/// Builds the library of the peer `name` below `folder` and returns its path.
pub fn library(name: &str, recipe: &Recipe, sources: &Sources, folder: &Path) -> Result<PathBuf> {
    fs::create_dir_all(folder).at(folder)?;
    let library = match recipe {
        Recipe::Archive { flags } => linked(name, &archive(name, flags, folder)?, folder)?,
        Recipe::Cmake { folder: within, target, options } => {
            cmake(&sources.path(within), target, options, &folder.join("cmake").join(name))?
        }
    };
    if library.is_file() { Ok(library) } else { wrong(format!("{} was not made", library.display())) }
}

/// The static library of the peer's crate, by itself: crates built together would share their features.
fn archive(name: &str, flags: &str, folder: &Path) -> Result<PathBuf> {
    let flags = flags.replace("@PEERS@", &workspace().display().to_string());
    let package = format!("peer-{name}");
    let mut command = cargo();
    command.args(["build", "--quiet", "--locked", "--release", "--package", &package, "--manifest-path"]);
    command.arg(workspace().join("Cargo.toml")).arg("--target-dir").arg(folder);
    command.env("CFLAGS", &flags).env("CXXFLAGS", &flags);
    output(&mut command)?;
    Ok(folder.join("release").join(format!("libpeer_{name}.a")))
}

/// Takes out of the archive what `malloc` needs, and nothing of Rust unless the peer is written in it.
fn linked(name: &str, archive: &Path, folder: &Path) -> Result<PathBuf> {
    let library = folder.join(format!("lib{name}.so"));
    let mut map = OsString::from("-Wl,--version-script=");
    map.push(workspace().join("exports.map"));
    let mut command = Command::new(env::var_os("CXX").unwrap_or_else(|| OsString::from("c++")));
    command.args(["-shared", "-pthread", "-o"]).arg(&library).arg(map);
    command.args(["-Wl,--undefined=malloc", "-Wl,--gc-sections", "-Wl,--no-undefined", "-Wl,--as-needed"]);
    output(command.arg(archive))?;
    Ok(library)
}

fn cmake(sources: &Path, target: &str, options: &[&str], folder: &Path) -> Result<PathBuf> {
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(sources).arg("-B").arg(folder).arg("-DCMAKE_BUILD_TYPE=Release").args(options);
    output(&mut configure)?;
    output(Command::new("cmake").arg("--build").arg(folder).args(["--target", target]))?;
    Ok(folder.join(format!("lib{target}.so")))
}
