//! What a command left to itself, for people.

use std::collections::BTreeMap;
use std::time::Duration;

use faultless_records::measurement::Orphan;

use crate::plain::plain;
use faultless_records::quantity::{count, seconds};

/// Says of what the command did not wait for that it is in no figure; none where there was nothing.
#[must_use]
pub fn in_no_figure(orphans: &[Orphan]) -> Option<String> {
    (!orphans.is_empty()).then(|| {
        format!(
            "no figure has what the command did not wait for, such as daemons: {}; let it keep servers in the foreground, \
             end them and wait for them",
            shown(orphans)
        )
    })
}

/// One entry for each name.
fn shown(orphans: &[Orphan]) -> String {
    let mut by_name: BTreeMap<&str, (u64, Duration, bool)> = BTreeMap::new();
    for orphan in orphans {
        let (number, processor, goes_on) = by_name.entry(&orphan.name).or_default();
        (*number, *processor, *goes_on) =
            (*number + 1, *processor + orphan.processor, *goes_on || orphan.goes_on);
    }
    let shown = by_name.into_iter().map(|(name, (number, processor, goes_on))| {
        let times = if number > 1 { format!("{} × ", count(number)) } else { String::new() };
        let what = match goes_on {
            true => "went on when it had ended".to_owned(),
            false => format!("{} s of processor time", seconds(processor)),
        };
        format!("{times}{} ({what})", plain(name))
    });
    shown.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_command_left_to_itself_is_named_once_each() {
        let orphan = |name: &str, processor_ms, goes_on| Orphan {
            name: name.into(),
            processor: Duration::from_millis(processor_ms),
            goes_on,
        };
        let orphans = [orphan("worker", 200, false), orphan("nginx", 0, true), orphan("worker", 150, false)];
        let text = in_no_figure(&orphans).unwrap();
        let named = "daemons: nginx (went on when it had ended), 2 × worker (0.35 s of processor time);";
        assert!(text.contains(named), "{text}");
        assert_eq!(in_no_figure(&[]), None);
    }
}
