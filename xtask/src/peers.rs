//! `cargo xtask peers`: other allocators as libraries to preload, for `faultless bench --allocators NAME=PATH`.
//!
//! Their sources come from published crates, pinned by the lock file in `bench/peers`, and are built as their authors build a
//! release. What programs call is the peer's own `malloc`, no function of ours in front of it; only dlmalloc, which has no C
//! interface, gets one. Needs a C and a C++ compiler, make, CMake, and the crates or a network to fetch them.

mod build;
mod proof;
mod sources;

use std::fs;
use std::path::{Path, PathBuf};

use crate::arguments::Arguments;
use crate::failure::{At, Failure, Result, wrong};
use crate::workspace::target;
use build::Recipe;
use sources::Sources;

/// A peer, from its crate to its library.
struct Peer {
    name: &'static str,
    /// The crate that carries its sources.
    package: &'static str,
    /// Which version of the allocator itself the crate carries.
    upstream: fn(&Sources) -> Option<String>,
    recipe: Recipe,
    /// What to set when running programs under it.
    environment: &'static [(&'static str, &'static str)],
}

/// Of mimalloc's own CMake file, whose defaults are those of a release.
const fn mimalloc(folder: &'static str) -> Recipe {
    Recipe::Cmake { folder, target: "mimalloc", options: &["-DMI_BUILD_TESTS=OFF"] }
}

const PEERS: &[Peer] = &[
    Peer {
        name: "mimalloc3",
        package: "libmimalloc-sys2",
        upstream: |sources| mimalloc_version(sources, "c_src/mimalloc3"),
        recipe: mimalloc("c_src/mimalloc3"),
        environment: &[],
    },
    Peer {
        name: "mimalloc2",
        package: "libmimalloc-sys2",
        upstream: |sources| mimalloc_version(sources, "c_src/mimalloc"),
        recipe: mimalloc("c_src/mimalloc"),
        environment: &[],
    },
    Peer {
        name: "snmalloc",
        package: "snmalloc-sys",
        upstream: |sources| Some(format!("snmalloc {}", sources.version)),
        recipe: Recipe::Cmake {
            folder: "upstream",
            target: "snmallocshim",
            options: &["-DSNMALLOC_BUILD_TESTING=OFF"],
        },
        environment: &[],
    },
    Peer {
        name: "jemalloc",
        package: "tikv-jemalloc-sys",
        upstream: |sources| Some(format!("jemalloc {}", sources.metadata()?.split('-').next()?)),
        recipe: Recipe::Archive { flags: "" },
        environment: &[],
    },
    Peer {
        name: "rpmalloc",
        package: "rpmalloc-sys",
        upstream: |sources| {
            let release = sources.read("rpmalloc/CHANGELOG")?.lines().next()?.to_owned();
            Some(format!("rpmalloc {release}, commit {}", sources.metadata()?))
        },
        // As its own build scripts do for a release; the crate alone stops at -O2.
        recipe: Recipe::Archive { flags: "-DENABLE_OVERRIDE=1 -O3 -funroll-loops" },
        environment: &[],
    },
    Peer {
        name: "tcmalloc",
        package: "libtcmalloc-sys",
        upstream: |sources| {
            // It has no releases: the day on which the crate took its sources.
            let changes = sources.read("CHANGELOG.md")?;
            let release = changes.lines().find(|line| line.contains(&format!("[{}]", sources.version)))?;
            Some(format!("google tcmalloc of {}", release.rsplit(' ').next()?))
        },
        recipe: Recipe::Archive { flags: "-ftls-model=initial-exec -include @PEERS@/tcmalloc/unprefixed.h" },
        // Its per-CPU caches need the registration that the C library makes for itself.
        environment: &[("GLIBC_TUNABLES", "glibc.pthread.rseq=0")],
    },
    Peer {
        name: "dlmalloc",
        package: "dlmalloc",
        upstream: |_| Some("dlmalloc in Rust, behind one lock".to_owned()),
        recipe: Recipe::Archive { flags: "" },
        environment: &[],
    },
];

/// mimalloc's version from the number in its header: 30302 is 3.3.2.
fn mimalloc_version(sources: &Sources, folder: &str) -> Option<String> {
    let header = sources.read(&format!("{folder}/include/mimalloc.h"))?;
    let define = header.lines().find(|line| line.starts_with("#define MI_MALLOC_VERSION"))?;
    let number: u32 = define.split_whitespace().nth(2)?.parse().ok()?;
    Some(format!("mimalloc {}.{}.{}", number / 10000, number / 100 % 100, number % 100))
}

/// Runs the task.
pub fn run(mut arguments: Arguments) -> Result<()> {
    let target = target()?;
    let folder = arguments.option("--out")?.map_or_else(|| target.join("peers"), PathBuf::from);
    let peers = chosen(&arguments.words()?)?;
    fs::create_dir_all(&folder).at(&folder)?;
    let folder = fs::canonicalize(&folder).at(&folder)?;
    let mut missed = Vec::new();
    for peer in peers {
        eprintln!("building {}", peer.name);
        let library = folder.join(format!("lib{}.so", peer.name));
        let log = folder.join(format!("{}.log", peer.name));
        // What is there afterwards is from this run; and new files are made, since programs may be running on an old one.
        let forget = || drop((fs::remove_file(&library), fs::remove_file(&log)));
        forget();
        if let Err(failure) = make(peer, &library, &target) {
            forget();
            fs::write(&log, failure.to_string()).at(&log)?;
            println!("{:<10} failed: {} ({})", peer.name, reason(&failure), log.display());
            missed.push(peer.name);
        }
    }
    if missed.is_empty() { Ok(()) } else { wrong(format!("not made: {}", missed.join(" "))) }
}

/// Builds one peer, puts it at `library` and shows that it works.
fn make(peer: &Peer, library: &Path, target: &Path) -> Result<()> {
    let sources = Sources::of(peer.package)?;
    let upstream = (peer.upstream)(&sources)
        .ok_or_else(|| Failure::Wrong(format!("{} no longer says what it carries", peer.package)))?;
    let built = build::library(peer.name, &peer.recipe, &sources, &target.join("peers-build"))?;
    fs::copy(&built, library).at(library)?;
    proof::works(library, peer.environment, target)?;
    let environment: String =
        peer.environment.iter().map(|(name, value)| format!(", run with {name}={value}")).collect();
    let (name, package, version) = (peer.name, peer.package, &sources.version);
    println!("{name:<10} {upstream} ({package} {version})  {}  ok{environment}", library.display());
    Ok(())
}

fn chosen(names: &[String]) -> Result<Vec<&'static Peer>> {
    if names.is_empty() {
        return Ok(PEERS.iter().collect());
    }
    let find = |name: &String| {
        let known = || PEERS.iter().map(|peer| peer.name).collect::<Vec<_>>().join(" ");
        let peer = PEERS.iter().find(|peer| peer.name == name);
        peer.ok_or_else(|| Failure::Usage(format!("no peer is called {name:?}; there are {}", known())))
    };
    names.iter().map(find).collect()
}

/// The line of a failure that says most: the first that speaks of an error, else the last.
fn reason(failure: &Failure) -> String {
    let text = failure.to_string();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let telling = lines.clone().find(|line| line.contains("error:") || line.contains("error["));
    telling.or_else(|| lines.next_back()).unwrap_or("no reason was given").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_found_by_name_and_all_when_none_is_named() {
        assert_eq!(chosen(&[]).unwrap().len(), PEERS.len());
        assert_eq!(chosen(&["jemalloc".to_owned()]).unwrap()[0].name, "jemalloc");
        assert!(chosen(&["hoard".to_owned()]).is_err());
    }

    #[test]
    fn the_crate_of_every_peer_is_pinned_and_what_cargo_builds_has_a_package_of_its_name() {
        let lock = fs::read_to_string(sources::workspace().join("Cargo.lock")).unwrap();
        for peer in PEERS {
            assert!(lock.contains(&format!("\nname = \"{}\"\n", peer.package)), "{}", peer.package);
            if matches!(peer.recipe, Recipe::Archive { .. }) {
                let manifest = sources::workspace().join(peer.name).join("Cargo.toml");
                let text = fs::read_to_string(&manifest).unwrap();
                assert!(text.contains(&format!("\n{} = ", peer.package)), "{}", manifest.display());
            }
        }
    }

    #[test]
    fn the_reason_of_a_failure_is_one_telling_line() {
        let of = |text: &str| reason(&Failure::Wrong(text.to_owned()));
        assert_eq!(
            of("cargo build: exit 101\nerror: no C++ compiler\nwarning: bad luck\n"),
            "error: no C++ compiler"
        );
        assert_eq!(of("witness: exit 1\na block lost its contents\n\n"), "a block lost its contents");
    }
}
