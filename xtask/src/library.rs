//! Builds `libfaultless.so` in one of its profiles, and `libfaultless.a`.

use std::path::PathBuf;

use crate::baseline;
use crate::failure::{Result, wrong};
use crate::workspace::{cargo, succeed, target};

/// Which of the workspace's profiles to build.
#[derive(Clone, Copy)]
pub enum Profile {
    /// As shipped.
    Dist,
    /// As shipped, with every debug assertion.
    Checked,
}

impl Profile {
    /// The profile's name in `Cargo.toml`, which is also its folder's.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Dist => "dist",
            Profile::Checked => "checked",
        }
    }
}

/// Builds the library and returns its path; as shipped it must load with the oldest glibc.
pub fn build(profile: Profile) -> Result<PathBuf> {
    let name = profile.name();
    let target = target()?;
    let arguments = ["build", "--quiet", "--package", "faultless-malloc", "--profile", name];
    succeed(cargo().args(arguments).arg("--target-dir").arg(&target))?;
    let library = target.join(name).join("libfaultless.so");
    if !library.is_file() {
        return wrong(format!("cargo did not make {}", library.display()));
    }
    if matches!(profile, Profile::Dist) {
        baseline::check(&library)?;
    }
    Ok(library)
}

/// Builds the static library and returns its path. Without the versioned and weak symbols that let the shared one load with an
/// old glibc: a fully static program has no versions, and a linker takes nothing out of `libc.a` for a weak symbol.
pub fn build_static() -> Result<PathBuf> {
    let target = target()?.join("static");
    let arguments = ["rustc", "--quiet", "--package", "faultless-malloc", "--profile", "dist", "--lib"];
    let kind = ["--crate-type", "staticlib", "--no-default-features"];
    succeed(cargo().args(arguments).args(kind).arg("--target-dir").arg(&target))?;
    let library = target.join("dist/libfaultless.a");
    if library.is_file() { Ok(library) } else { wrong(format!("cargo did not make {}", library.display())) }
}
