//! Which allocators take part in a benchmark, and how each is made to.

use std::fs;
use std::path::{Path, PathBuf};

use faultless_probe::allocators::{Installed, installed};
use faultless_records::bench::Contender;
use faultless_report::plain::plain;
use faultless_trial::benchmark::campaign::Entry;
use faultless_trial::environment::Environment;

use crate::failure::Failure;
use crate::plan;

/// Name of the C library's own allocator.
const LIBC: &str = "libc";
/// Name of ours.
const FAULTLESS: &str = "faultless";

/// The name under which an installed allocator is asked for.
#[must_use]
pub fn key(installed: &Installed) -> String {
    installed.allocator.name().to_lowercase()
}

/// The contenders that were asked for, or all that are installed.
///
/// # Errors
/// [`Failure::Usage`] for a name that is not known or a library that is not there.
pub fn contenders(
    wanted: &[String],
    own: &Environment,
    faultless: &Path,
) -> Result<Vec<(Contender, Entry)>, Failure> {
    let installed = installed();
    let base = plan::with_defaults(own);
    let names: Vec<String> = if wanted.is_empty() {
        [LIBC.to_owned(), FAULTLESS.to_owned()].into_iter().chain(installed.iter().map(key)).collect()
    } else {
        wanted.to_vec()
    };
    let mut contenders: Vec<(Contender, Entry)> = Vec::new();
    for wish in &names {
        let (name, library) = locate(wish, &installed, faultless)?;
        if contenders.iter().any(|(known, _)| known.name == name) {
            return Err(Failure::Usage(format!("the allocator {name} is named twice")));
        }
        let contender = Contender {
            name,
            library: library.as_ref().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned())),
        };
        let environment = match &library {
            Some(path) => plan::under_faultless(&base, path),
            None => base.clone(),
        };
        contenders.push((contender, Entry { environment, library }));
    }
    Ok(contenders)
}

fn locate(
    wish: &str,
    installed: &[Installed],
    faultless: &Path,
) -> Result<(String, Option<PathBuf>), Failure> {
    if let Some((name, path)) = wish.split_once('=') {
        let refused = |reason: &str| Failure::Usage(format!("{wish}: {reason}"));
        if name.is_empty() || plain(name) != name {
            return Err(refused(
                "an allocator's name is at least one character, and none that controls a terminal",
            ));
        }
        let library = fs::canonicalize(path)
            .ok()
            .filter(|library| library.is_file())
            .ok_or_else(|| refused("there is no such library"))?;
        // The loader splits the variable there.
        if library.to_string_lossy().contains([':', ' ']) {
            return Err(refused("its path contains a character that LD_PRELOAD cannot carry"));
        }
        return Ok((name.to_owned(), Some(library)));
    }
    match wish {
        LIBC => Ok((wish.to_owned(), None)),
        FAULTLESS => {
            let library = fs::canonicalize(faultless).unwrap_or_else(|_| faultless.to_owned());
            Ok((wish.to_owned(), Some(library)))
        }
        _ => match installed.iter().find(|known| key(known) == wish) {
            Some(known) => Ok((wish.to_owned(), Some(known.library.clone()))),
            None => Err(Failure::Usage(format!(
                "no allocator {wish} is installed; `faultless bench --list` names those that are, NAME=PATH takes any library"
            ))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(wanted: &[&str]) -> Result<Vec<String>, Failure> {
        let wanted: Vec<String> = wanted.iter().map(|&name| name.into()).collect();
        let environment = Environment::new([("MALLOC_ARENA_MAX".into(), "1".into())]);
        let found = contenders(&wanted, &environment, Path::new("/f/libfaultless-1.so"))?;
        assert!(found.iter().all(|(_, entry)| entry.environment.get("MALLOC_ARENA_MAX").is_none()));
        Ok(found.into_iter().map(|(contender, _)| contender.name).collect())
    }

    #[test]
    fn contenders_keep_their_order_and_lose_the_users_settings() {
        assert_eq!(names(&["faultless", "libc", "other=/bin/sh"]).unwrap(), ["faultless", "libc", "other"]);
        assert_eq!(names(&[]).unwrap()[..2], ["libc", "faultless"]);
    }

    #[test]
    fn what_cannot_take_part_is_refused() {
        for wrong in [
            &["nomalloc"][..],
            &["x=/no/such/file"],
            &["libc", "libc"],
            &["x=/tmp"],
            &["=/bin/sh"],
            &["\x1b=/bin/sh"],
        ] {
            assert!(matches!(names(wrong), Err(Failure::Usage(_))), "{wrong:?}");
        }
    }
}
