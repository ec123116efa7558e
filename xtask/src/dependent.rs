//! A program of somebody else's: a package of its own that depends on the heap, built as Cargo does by default.

use crate::failure::{At, Result};
use crate::workspace::{TemporaryFolder, root, succeed};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The package and its outputs, gone with this.
pub struct Dependent {
    folder: TemporaryFolder,
}

impl Dependent {
    /// Writes the package, of one source file, for a task.
    pub fn new(task: &str, main: &str) -> Result<Self> {
        let folder = TemporaryFolder::new(task)?;
        let heap = root().join("crates/heap");
        let manifest = format!(
            "[package]\nname = \"dependent\"\nedition = \"2024\"\n[dependencies]\nfaultless-heap = {{ path = {heap:?} }}\n[workspace]\n"
        );
        let sources = folder.path().join("src");
        fs::create_dir(&sources).at(&sources)?;
        for (path, text) in
            [(folder.path().join("Cargo.toml"), manifest.as_str()), (sources.join("main.rs"), main)]
        {
            fs::write(&path, text).at(&path)?;
        }
        Ok(Self { folder })
    }

    /// Builds its release for a target with this Cargo. Returns the program.
    pub fn build(&self, cargo: &mut Command, target: &str) -> Result<PathBuf> {
        let [manifest, outputs] = ["Cargo.toml", "target"].map(|name| self.folder.path().join(name));
        let words = ["build", "--release", "--target", target, "--manifest-path"];
        succeed(cargo.args(words).arg(manifest).arg("--target-dir").arg(&outputs))?;
        Ok(outputs.join(target).join("release/dependent"))
    }
}
