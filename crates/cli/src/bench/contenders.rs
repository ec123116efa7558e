//! Which allocators take part in a benchmark, and how each is made to.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use faultless_probe::allocators::{Installed, installed};
use faultless_records::bench::Contender;
use faultless_records::preload_list::refusal_of_preload;
use faultless_report::plain::plain;
use faultless_symbols::exported;
use faultless_trial::benchmark::campaign::Entry;
use faultless_trial::environment::Environment;

use crate::failure::Failure;
use crate::plan;

/// Name of the C library's own allocator.
const LIBC: &str = "libc";
/// Name of ours.
const FAULTLESS: &str = "faultless";

/// One of these is what an allocator replaces: malloc, or C++'s `operator new(size_t)`.
const REPLACED: [&str; 2] = ["malloc", "_Znwm"];

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
        whole(wanted)
    };
    let mut contenders: Vec<(Contender, Entry)> = Vec::new();
    for wish in &names {
        let wish = Wish::parse(wish)?;
        let library = locate(wish.allocator, &installed, faultless)?;
        if contenders.iter().any(|(known, _)| known.name == wish.name) {
            return Err(Failure::Usage(format!("the allocator {} is named twice", wish.name)));
        }
        let mut environment = match &library {
            Some(path) => plan::under_faultless(&base, path, ""),
            None => base.clone(),
        };
        for (name, value) in &wish.settings {
            environment = environment.with(name, value);
        }
        let contender = Contender {
            name: wish.name.to_owned(),
            library: library.as_ref().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned())),
            settings: wish.settings.iter().map(|(name, value)| format!("{name}={value}")).collect(),
        };
        contenders.push((contender, Entry { environment, library }));
    }
    // Two libraries of one file name, such as two versions in folders of their own, are not one.
    let paths: Vec<PathBuf> = contenders.iter().filter_map(|(_, entry)| entry.library.clone()).collect();
    for (contender, entry) in &mut contenders {
        let Some(path) = &entry.library else { continue };
        if paths.iter().any(|other| other != path && other.file_name() == path.file_name()) {
            contender.library = Some(path.to_string_lossy().into_owned());
        }
    }
    Ok(contenders)
}

/// Joins again what a comma in a setting's value has parted: a wish ends with its allocator, and no allocator is a setting.
fn whole(parts: &[String]) -> Vec<String> {
    let mut wishes: Vec<String> = Vec::new();
    for part in parts {
        match wishes.last_mut().filter(|wish| ends_with_setting(wish)) {
            Some(wish) => wish.extend([",", part]),
            None => wishes.push(part.clone()),
        }
    }
    wishes
}

/// Whether `VARIABLE=VALUE` stands where the allocator should.
fn ends_with_setting(wish: &str) -> bool {
    let is_variable = |name: &str| {
        name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') && !name.is_empty()
    };
    let last = wish.split_once('=').and_then(|(_, rest)| rest.rsplit(' ').next());
    last.and_then(|word| word.split_once('=')).is_some_and(|(name, _)| is_variable(name))
}

/// `ALLOCATOR`, or `NAME=VARIABLE=VALUE ... ALLOCATOR`, as a shell sets variables for one command.
struct Wish<'text> {
    name: &'text str,
    settings: Vec<(&'text str, &'text str)>,
    /// `libc`, `faultless`, the name of an installed one, or the path of a library.
    allocator: &'text str,
}

impl<'text> Wish<'text> {
    fn parse(text: &'text str) -> Result<Self, Failure> {
        let refused = |reason: &str| Failure::Usage(format!("{text}: {reason}"));
        let Some((name, rest)) = text.split_once('=') else {
            return Ok(Self { name: text, settings: Vec::new(), allocator: text });
        };
        if name.is_empty() || plain(name) != name {
            return Err(refused(
                "an allocator's name is at least one character, and none that controls a terminal",
            ));
        }
        let mut words: Vec<&str> = rest.split(' ').collect();
        let allocator = words.pop().unwrap_or_default();
        let settings: Option<Vec<_>> = words.into_iter().map(|word| word.split_once('=')).collect();
        match settings {
            Some(settings) if !settings.iter().any(|(name, _)| name.is_empty() || *name == "LD_PRELOAD") => {
                Ok(Self { name, settings, allocator })
            }
            _ => Err(refused(
                "before the library stand settings, VARIABLE=VALUE; a path with a blank cannot be preloaded",
            )),
        }
    }
}

/// The library of an allocator; none for libc's own.
fn locate(wish: &str, installed: &[Installed], faultless: &Path) -> Result<Option<PathBuf>, Failure> {
    match wish {
        LIBC => return Ok(None),
        FAULTLESS => return Ok(Some(fs::canonicalize(faultless).unwrap_or_else(|_| faultless.to_owned()))),
        _ => {}
    }
    if let Some(known) = installed.iter().find(|known| key(known) == wish) {
        return Ok(Some(known.library.clone()));
    }
    if wish.is_empty() {
        return Err(Failure::Usage(
            "an allocator has no name: one stands between two commas, and a library behind NAME=".into(),
        ));
    }
    if !wish.contains('/') {
        return Err(Failure::Usage(format!(
            "no allocator {wish} is installed; `faultless bench --list` names those that are, NAME=PATH takes any library"
        )));
    }
    let refused = |reason: &str| Failure::Usage(format!("{wish}: {reason}"));
    let library = fs::canonicalize(wish)
        .ok()
        .filter(|library| library.is_file())
        .ok_or_else(|| refused("there is no such library"))?;
    if let Some(reason) = refusal_of_preload(library.as_os_str().as_bytes()) {
        return Err(refused(reason));
    }
    // Its row would be libc's under another name.
    let exported = File::open(&library)
        .map_err(|error| error.to_string())
        .and_then(|file| exported::offsets(&file, &REPLACED))
        .map_err(|reason| refused(&reason))?;
    if exported.iter().all(Option::is_none) {
        return Err(refused("it is no allocator: it defines no malloc"));
    }
    Ok(Some(library))
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

    /// A folder of a test's own.
    fn folder(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("faultless-contenders-{name}-{}", std::process::id()))
    }

    /// A library that may take part, in a folder that is made for it.
    fn library(folder: &Path) -> String {
        let library = folder.join("libx.so");
        fs::create_dir_all(folder).unwrap();
        fs::write(&library, faultless_bundle::LIBRARY).unwrap();
        library.to_str().unwrap().to_owned()
    }

    #[test]
    fn contenders_keep_their_order_and_lose_the_users_settings() {
        let place = folder("order");
        let other = format!("other={}", library(&place));
        assert_eq!(names(&["faultless", "libc", &other]).unwrap(), ["faultless", "libc", "other"]);
        assert_eq!(names(&[]).unwrap()[..2], ["libc", "faultless"]);
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn settings_are_for_one_contender() {
        let wanted = [
            "arena=MALLOC_ARENA_MAX=1 libc".into(),
            "libc".into(),
            "held=FAULTLESS=purge:never faultless".into(),
        ];
        let found = contenders(&wanted, &Environment::default(), Path::new("/f/libfaultless-1.so")).unwrap();
        assert_eq!(found[0].0.settings, ["MALLOC_ARENA_MAX=1"]);
        assert_eq!(found[0].1.environment.get("MALLOC_ARENA_MAX").unwrap(), "1");
        assert_eq!(found[1].1.environment.get("MALLOC_ARENA_MAX"), None);
        assert_eq!(found[2].1.environment.get("FAULTLESS").unwrap(), "purge:never");
        assert!(found[0].1.library.is_none() && found[2].1.library.is_some());
    }

    #[test]
    fn two_libraries_of_one_file_name_are_told_apart_by_their_folders() {
        let place = folder("old-and-new");
        let wanted = ["old", "new"].map(|name| format!("{name}={}", library(&place.join(name))));
        let wanted = [&wanted[..], &[format!("same=A=1 {}", &wanted[0][4..])]].concat();
        let found = contenders(&wanted, &Environment::default(), Path::new("/f/libfaultless-1.so")).unwrap();
        let libraries: Vec<_> =
            found.iter().map(|(contender, _)| contender.library.as_ref().unwrap()).collect();
        assert!(
            libraries[0].ends_with("/old/libx.so") && libraries[1].ends_with("/new/libx.so"),
            "{libraries:?}"
        );
        assert_eq!(libraries[0], libraries[2]);
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn a_setting_may_have_commas_and_an_allocator_after_it_none() {
        let of = |line: &str| whole(&line.split(',').map(String::from).collect::<Vec<_>>());
        let line =
            "libc,held=FAULTLESS=purge:never,purger:off faultless,x=/a/b=c.so,y=A=1 B=2,3 /d.so,libc2=libc";
        assert_eq!(
            of(line),
            [
                "libc",
                "held=FAULTLESS=purge:never,purger:off faultless",
                "x=/a/b=c.so",
                "y=A=1 B=2,3 /d.so",
                "libc2=libc"
            ]
        );
        assert_eq!(of("x=A=1"), ["x=A=1"]);
    }

    #[test]
    fn what_cannot_take_part_is_refused() {
        for wrong in [
            &["nomalloc"][..],
            &["x=/no/such/file"],
            &["libc", "libc"],
            &["x=/tmp"],
            &["x=/etc/passwd"],
            &["x=/bin/sh"],
            &["=/bin/sh"],
            &["\x1b=/bin/sh"],
            &["x=relative"],
            &["x=no setting /bin/sh"],
            &["x=LD_PRELOAD=/bin/ls /bin/sh"],
        ] {
            assert!(matches!(names(wrong), Err(Failure::Usage(_))), "{wrong:?}");
        }
    }
}
