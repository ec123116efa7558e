//! Which Java development kits are installed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Where distributions put them, each in a directory of its own.
const DIRECTORIES: &[&str] = &["/usr/lib/jvm", "/usr/java", "/opt/java"];

/// A development kit: runtime and compiler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Java {
    /// Its major version, such as 17.
    pub version: u32,
    /// Its directory, without symbolic links; `bin/java` and `bin/javac` are in it.
    pub home: PathBuf,
}

/// The installed kits, one of each major version, in their order.
#[must_use]
pub fn installed() -> Vec<Java> {
    installed_in(DIRECTORIES.iter().map(Path::new))
}

fn installed_in<'path>(directories: impl IntoIterator<Item = &'path Path>) -> Vec<Java> {
    let mut found: BTreeMap<u32, Java> = BTreeMap::new();
    for directory in directories {
        let entries = fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
        let mut homes: Vec<PathBuf> =
            entries.filter_map(|entry| fs::canonicalize(entry.path()).ok()).collect();
        homes.sort();
        for home in homes {
            let has_both = ["bin/java", "bin/javac"].iter().all(|file| home.join(file).is_file());
            let release = fs::read_to_string(home.join("release")).unwrap_or_default();
            if let Some(version) = major_version(&release).filter(|_| has_both) {
                found.entry(version).or_insert(Java { version, home });
            }
        }
    }
    found.into_values().collect()
}

/// The first number of `JAVA_VERSION="17.0.8"` in a kit's `release` file; of `1.8.0` the second.
fn major_version(release: &str) -> Option<u32> {
    let version = release.lines().find_map(|line| line.strip_prefix("JAVA_VERSION="))?.trim_matches('"');
    let mut numbers = version.split(['.', '_', '-', '+']).map(str::parse);
    match numbers.next()?.ok()? {
        1 => numbers.next()?.ok(),
        major => Some(major),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_the_release_file() {
        assert_eq!(major_version("IMPLEMENTOR=x\nJAVA_VERSION=\"17.0.17\"\n"), Some(17));
        assert_eq!(major_version("JAVA_VERSION=\"1.8.0_402\""), Some(8));
        assert_eq!(major_version("JAVA_VERSION=\"25\""), Some(25));
        assert_eq!(major_version("JAVA_VERSION=\"\"\nX=17"), None);
    }

    #[test]
    fn a_kit_needs_its_compiler_and_counts_once() {
        let directory = std::env::temp_dir().join(format!("faultless-java-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        for (name, files) in
            [("a-17", &["java", "javac"][..]), ("b-17", &["java", "javac"]), ("jre-21", &["java"])]
        {
            let home = directory.join(name);
            fs::create_dir_all(home.join("bin")).unwrap();
            files.iter().for_each(|file| fs::write(home.join("bin").join(file), "").unwrap());
            let version = name.rsplit('-').next().unwrap();
            fs::write(home.join("release"), format!("JAVA_VERSION=\"{version}\"")).unwrap();
        }
        let found = installed_in([directory.as_path()]);
        let expected = Java { version: 17, home: fs::canonicalize(directory.join("a-17")).unwrap() };
        assert_eq!(found, [expected]);
        fs::remove_dir_all(&directory).unwrap();
    }
}
