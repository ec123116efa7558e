//! Where Cargo keeps the sources of a published crate, and which version the lock file names.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Result};
use crate::workspace::{cargo, output, root};

/// The folder of the peers' own Cargo workspace.
pub fn workspace() -> PathBuf {
    root().join("bench/peers")
}

/// A published crate as Cargo unpacked it.
pub struct Sources {
    /// The crate's version, without what stands behind a `+`.
    pub version: String,
    full_version: String,
    folder: PathBuf,
}

impl Sources {
    /// Finds the crate, which Cargo fetches if need be.
    pub fn of(package: &str) -> Result<Self> {
        let manifest = workspace().join("Cargo.toml");
        let mut command = cargo();
        command.args(["metadata", "--locked", "--format-version", "1", "--manifest-path"]).arg(manifest);
        let metadata = output(&mut command)?;
        Self::parse(&metadata, package)
            .ok_or_else(|| Failure::Wrong(format!("cargo metadata does not say where {package} is")))
    }

    /// From `cargo metadata`: a package's name and version stand side by side and open its record.
    fn parse(metadata: &str, package: &str) -> Option<Self> {
        let opening = format!("{{\"name\":\"{package}\",\"version\":\"");
        let record = &metadata[metadata.find(&opening)? + opening.len()..];
        let full_version = record.split('"').next()?.to_owned();
        let (_, manifest) = record.split_once("\"manifest_path\":\"")?;
        let folder = Path::new(manifest.split('"').next()?).parent()?.to_owned();
        let version = full_version.split('+').next()?.to_owned();
        Some(Self { version, full_version, folder })
    }

    /// What stands behind the `+` of the crate's version: of which release or commit its sources are.
    pub fn metadata(&self) -> Option<&str> {
        Some(self.full_version.split_once('+')?.1)
    }

    /// The path of a file or folder of the crate.
    pub fn path(&self, within: &str) -> PathBuf {
        self.folder.join(within)
    }

    /// The text of a file of the crate.
    pub fn read(&self, within: &str) -> Option<String> {
        fs::read_to_string(self.path(within)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_is_found_in_what_cargo_says() {
        let metadata = r#"{"packages":[{"name":"a","version":"1.0.0","dependencies":[{"name":"b"}],"manifest_path":"/r/a-1.0.0/Cargo.toml"},{"name":"b","version":"0.7.1+5.3.1-0-g81","id":"x","manifest_path":"/r/b-0.7.1/Cargo.toml"}]}"#;
        let sources = Sources::parse(metadata, "b").unwrap();
        assert_eq!((sources.version.as_str(), sources.metadata()), ("0.7.1", Some("5.3.1-0-g81")));
        assert_eq!(sources.path("x/y.h"), Path::new("/r/b-0.7.1/x/y.h"));
        assert!(Sources::parse(metadata, "c").is_none());
    }
}
