//! The environments in which a command is compared.

use std::ffi::OsStr;
use std::path::Path;

use faultless_diagnosis::setting::{Setting, tunable_of, tunables_without_malloc};
use faultless_diagnosis::tuning::Tuning;
use faultless_diagnosis::verdict::Role;
use faultless_probe::place;
use faultless_records::allocator::Allocator;
use faultless_records::preload_list::entries;
use faultless_report::paste::TakenOut;
use faultless_trial::comparison::Arm;
use faultless_trial::environment::Environment;

/// The user's environment with our library in front of any other preload, and without another copy of it: that would
/// serve nothing, and write its own report over the first one's. Where a copy is among what the system preloads, which cannot be left
/// out, ours is.
#[must_use]
pub fn under_faultless(own: &Environment, library: &Path, system_preload: &str) -> Environment {
    let is_ours = |entry: &str| Allocator::of_file(entry) == Some(Allocator::Faultless);
    let others = without_preloads(own.clone(), is_ours);
    if entries(system_preload).any(is_ours) {
        return others;
    }
    let preload = place::preload_value(library, others.get("LD_PRELOAD"));
    others.with("LD_PRELOAD", preload)
}

/// The user's environment without settings of malloc and without another allocator preloaded.
#[must_use]
pub fn with_defaults(own: &Environment) -> Environment {
    let is_setting = |name: &OsStr| name.to_str().and_then(tunable_of).is_some();
    let mut plain = own.clone().without(is_setting);
    if let Some(tunables) = own.get("GLIBC_TUNABLES").filter(|tunables| !tunables.is_empty()) {
        plain = match tunables_without_malloc(&tunables.to_string_lossy()) {
            Some(kept) => plain.with("GLIBC_TUNABLES", kept),
            None => plain.without(|name| name == "GLIBC_TUNABLES"),
        };
    }
    without_preloads(plain, is_allocator)
}

/// The same without the entries of `LD_PRELOAD` that fit.
fn without_preloads(environment: Environment, fits: impl Fn(&str) -> bool) -> Environment {
    let preload = environment.get("LD_PRELOAD").map(|value| value.to_string_lossy().into_owned());
    let Some(preload) = preload.filter(|preload| entries(preload).any(&fits)) else { return environment };
    let kept: Vec<&str> = entries(&preload).filter(|entry| !fits(entry)).collect();
    match kept.as_slice() {
        [] => environment.without(|name| name == "LD_PRELOAD"),
        kept => environment.with("LD_PRELOAD", kept.join(":")),
    }
}

/// What [`with_defaults`] changes.
#[must_use]
pub fn taken_out(own: &Environment) -> Vec<TakenOut> {
    let plain = with_defaults(own);
    let changed = own.variables().iter().filter(|(name, value)| plain.get(name) != Some(value));
    let as_text = |text: &OsStr| text.to_string_lossy().into_owned();
    changed
        .map(|(name, _)| TakenOut {
            variable: as_text(name),
            kept: plain.get(name).map(|kept| as_text(kept)),
        })
        .collect()
}

/// Whether the user preloads an allocator, which the arms of libc's settings go without.
#[must_use]
pub fn preloads_allocator(own: &Environment) -> bool {
    own.get("LD_PRELOAD").is_some_and(|preload| entries(&preload.to_string_lossy()).any(is_allocator))
}

/// All arms, the base first.
///
/// `libc_is_reachable` is false for commands that bring another allocator along: settings of libc mean nothing there.
#[must_use]
pub fn arms(
    own: &Environment,
    tuning: &Tuning,
    faultless: Environment,
    libc_is_reachable: bool,
) -> Vec<(Arm, Role)> {
    let arm = |name: &str, environment| Arm { name: name.to_owned(), environment };
    let mut arms = vec![(arm("libc as is", own.clone()), Role::AsIs)];
    let defaults = with_defaults(own);
    if libc_is_reachable && defaults != *own {
        arms.push((arm("libc defaults", defaults.clone()), Role::Defaults));
    }
    if libc_is_reachable && !tuning.parts.is_empty() {
        let mut tuned = |name: &str, settings: Vec<Setting>| {
            let set = |environment: Environment, setting: &Setting| {
                environment.with(setting.variable, &setting.value)
            };
            let environment = settings.iter().fold(defaults.clone(), set);
            arms.push((arm(name, environment), Role::Libc(settings)));
        };
        tuned("libc tuned", tuning.settings());
        if tuning.parts.len() > 1 {
            for part in &tuning.parts {
                tuned(part.name, part.settings.clone());
            }
        }
    }
    arms.push((arm("Faultless", faultless), Role::Faultless));
    arms
}

fn is_allocator(entry: &str) -> bool {
    Allocator::of_file(entry).is_some_and(|allocator| allocator != Allocator::LibcDebug)
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_diagnosis::tuning::Part;

    fn environment(pairs: &[(&str, &str)]) -> Environment {
        Environment::new(pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())))
    }

    fn under(own: &Environment) -> Environment {
        under_faultless(own, Path::new("/l.so"), "")
    }

    fn part(name: &'static str, variable: &'static str) -> Part {
        Part { name, settings: vec![Setting { variable, value: "1".into() }], reason: String::new() }
    }

    #[test]
    fn every_part_of_a_tuning_is_tried_alone_and_together() {
        let tuning = Tuning {
            parts: vec![
                part("mmap half only", "MALLOC_MMAP_MAX_"),
                part("trim half only", "MALLOC_TRIM_THRESHOLD_"),
            ],
            remarks: Vec::new(),
        };
        let own = environment(&[("PATH", "/bin")]);
        let arms = arms(&own, &tuning, under(&own), true);
        let names: Vec<&str> = arms.iter().map(|(arm, _)| arm.name.as_str()).collect();
        assert_eq!(names, ["libc as is", "libc tuned", "mmap half only", "trim half only", "Faultless"]);
        assert!(arms[2].0.environment.get("MALLOC_TRIM_THRESHOLD_").is_none());
        assert_eq!(arms[4].0.environment.get("LD_PRELOAD").unwrap(), "/l.so");
    }

    #[test]
    fn the_users_settings_are_the_base_and_their_absence_an_arm() {
        let own_environment = environment(&[
            ("MALLOC_ARENA_MAX", "1"),
            ("GLIBC_TUNABLES", "glibc.malloc.perturb=1:glibc.rtld.nns=4"),
        ]);
        let arms = arms(&own_environment, &Tuning::default(), under(&own_environment), true);
        assert_eq!(arms.len(), 3);
        assert_eq!(arms[1].0.environment, environment(&[("GLIBC_TUNABLES", "glibc.rtld.nns=4")]));
        let own = |variable: &str, kept: Option<&str>| TakenOut {
            variable: variable.into(),
            kept: kept.map(str::to_owned),
        };
        let expected = [own("MALLOC_ARENA_MAX", None), own("GLIBC_TUNABLES", Some("glibc.rtld.nns=4"))];
        assert_eq!(taken_out(&own_environment), expected);
    }

    #[test]
    fn a_setting_that_makes_each_call_slower_is_the_users_own_too() {
        let own = environment(&[("MALLOC_PERTURB_", "165")]);
        let tried = arms(&own, &Tuning::default(), under(&own), true);
        assert_eq!(tried.len(), 3);
        assert_eq!(tried[1].0.environment, environment(&[]));
        let own = environment(&[("GLIBC_TUNABLES", ""), ("MALLOC_CONF", "x:1")]);
        assert_eq!(arms(&own, &Tuning::default(), under(&own), true).len(), 2, "nothing of libc's malloc");
    }

    #[test]
    fn another_allocator_is_taken_out_of_the_libc_arms_only() {
        let own = environment(&[("LD_PRELOAD", "/a/libjemalloc.so.2:/a/libother.so")]);
        assert_eq!(with_defaults(&own).get("LD_PRELOAD").unwrap(), "/a/libother.so");
        let ours = under(&own);
        assert_eq!(ours.get("LD_PRELOAD").unwrap(), "/l.so:/a/libjemalloc.so.2:/a/libother.so");
    }

    #[test]
    fn no_second_copy_of_ours_is_loaded() {
        let own = environment(&[("LD_PRELOAD", "/usr/lib/libfaultless.so /a/libother.so")]);
        let ours = under(&own);
        assert_eq!(ours.get("LD_PRELOAD").unwrap(), "/l.so:/a/libother.so");
        let own = environment(&[("LD_PRELOAD", "/r/libfaultless-recorder.so")]);
        let ours = under(&own);
        assert_eq!(ours.get("LD_PRELOAD").unwrap(), "/l.so:/r/libfaultless-recorder.so");
    }

    #[test]
    fn where_the_system_preloads_a_copy_of_ours_that_one_is_the_only_one() {
        let own = environment(&[("LD_PRELOAD", "/usr/lib/libfaultless.so:/a/libother.so")]);
        let ours = under_faultless(&own, Path::new("/l.so"), "/b/libx.so:/usr/lib/libfaultless.so");
        assert_eq!(ours.get("LD_PRELOAD").unwrap(), "/a/libother.so");
    }

    #[test]
    fn libc_settings_are_not_tried_where_libc_does_not_allocate() {
        let tuning =
            Tuning { parts: vec![part("trim half only", "MALLOC_TRIM_THRESHOLD_")], remarks: Vec::new() };
        let own = environment(&[("MALLOC_ARENA_MAX", "2")]);
        assert_eq!(arms(&own, &tuning, under(&own), false).len(), 2);
        assert!(!preloads_allocator(&own), "no reason to believe that libc can be reached");
        assert!(preloads_allocator(&environment(&[("LD_PRELOAD", "/a/libtcmalloc.so.4")])));
    }
}
