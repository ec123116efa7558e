//! The answer that stands before the table of page faults.

use std::fmt::Write as _;

use faultless_diagnosis::faults::profile::{Function, NOT_LOOKED_AT, Profile};
use faultless_diagnosis::faults::weight::{Few, counted, known_by_few};
use faultless_records::fault_recording::FaultRecording;
use faultless_records::quantity::{count, percent, seconds_of, several, whole};

use super::table::{LONGEST_NAME, file_name, shown_name, subject};
use crate::plain::plain;

/// A function that takes less than this part is not the answer.
const STANDS_OUT: f64 = 0.2;
/// A line or a kind of memory that has less than this part of a function's faults does not speak for it.
const MOST: f64 = 0.5;
/// A function is not accused where few samples stand for more than this part of its faults.
const MOST_BY_FEW: f64 = 0.5;
/// From this part on what was not looked at, or hardly, may change the answer.
const MUCH: f64 = 0.1;
/// A period that much finer than one of which few samples came gives enough, and loses few.
const FINER: u64 = 25;

/// The answer in a few sentences.
pub(crate) fn answer(recording: &FaultRecording, profile: &Profile) -> String {
    let seconds = recording.duration_ns as f64 / 1e9;
    let all = counted(recording);
    if all.all() == 0 {
        return format!("{}: no page faults in {} s\n", subject(recording), seconds_of(seconds));
    }
    let mut text =
        format!("{}: {} in {} s", subject(recording), several(all.all(), "page fault"), seconds_of(seconds));
    if seconds > 0.0 {
        let _ = write!(text, " ({} a second)", whole(all.all() as f64 / seconds));
    }
    let _ = match (all.major, profile.all.huge) {
        (0, huge) if huge < 0.5 => writeln!(text, ", all minor"),
        (major, huge) if huge < 0.5 => writeln!(text, ", {} of them major", count(major)),
        (0, huge) => writeln!(text, ", all minor; {} brought a huge page", whole(huge)),
        (major, huge) => {
            writeln!(text, ", {} of them major; {} brought a huge page", count(major), whole(huge))
        }
    };
    let first = profile.functions.iter().find(|function| function.name != NOT_LOOKED_AT);
    let few = known_by_few(recording);
    let is_certain = first.is_none_or(|first| first.known_by_few <= first.amount.faults * MOST_BY_FEW);
    match (first, few) {
        (Some(_), Some(few)) if !is_certain => {
            let _ = writeln!(text, "No function stands out for certain: {}", in_words(few));
        }
        (Some(first), _) => text += &of_first(first, profile),
        (None, _) => {}
    }
    let unseen = profile.functions.iter().find(|function| function.name == NOT_LOOKED_AT);
    if let Some(part) = unseen.map(|unseen| profile.share(unseen.amount.faults)).filter(|part| *part > MUCH) {
        let _ = writeln!(text, "{} of them were not looked at, and may be of any function", percent(part));
    }
    if let Some(few) = few.filter(|few| is_certain && few.faults / all.all() as f64 > MUCH) {
        let _ = writeln!(text, "Shares are rough: {}", in_words(few));
    }
    text
}

/// Who takes most, where, and on what memory.
fn of_first(first: &Function, profile: &Profile) -> String {
    let share = profile.share(first.amount.faults);
    let name = shown_name(first, LONGEST_NAME);
    let mut text = match share < STANDS_OUT {
        true => format!("No function stands out; the first, {name}, takes {} of them", percent(share)),
        false => format!("{} of them are {name}'s", percent(share)),
    };
    let is_most = |faults: f64| faults >= first.amount.faults * MOST;
    if let Some(((file, line), _)) = first.lines.first().filter(|(_, faults)| is_most(*faults)) {
        let _ = write!(text, " ({}:{line})", plain(file_name(file)));
    }
    if let Some((kind, _)) = first.kinds.first().filter(|(_, faults)| is_most(*faults)) {
        let _ = write!(text, ", on {}", kind_in_words(&kind.name()));
    }
    text + "\n"
}

fn in_words(few: Few) -> String {
    let (samples, faults) = (several(few.samples, "sample"), whole(few.faults));
    let stand = if few.samples == 1 { "stands" } else { "stand" };
    let finer = (few.period / FINER).max(1);
    format!("{samples} {stand} for {faults} of them; --every {finer} looks at more")
}

fn kind_in_words(name: &str) -> String {
    plain(&match name {
        "anonymous (mmap)" => "anonymous memory from mmap".to_owned(),
        "heap (brk)" => "the heap that brk grows".to_owned(),
        "stack" => "its stack".to_owned(),
        other => other.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::tree::tests::recording;
    use faultless_records::fault_recording::{Faults, Step};

    fn text(recording: &FaultRecording) -> String {
        answer(recording, &Profile::of(recording))
    }

    #[test]
    fn a_function_that_few_samples_speak_for_is_not_accused() {
        let mut recording = recording();
        assert!(text(&recording).contains("of them are "), "{}", text(&recording));
        recording.method.steps[0].minor_period = 503;
        recording.faults.truncate(1);
        (recording.faults[0].samples, recording.faults[0].weight) = (29, 29.0);
        let few = text(&recording);
        assert!(few.contains("\nNo function stands out for certain: 29 samples stand for "), "{few}");
        assert!(
            few.contains("--every 20 ") && !few.contains("of them are ") && !few.contains("rough"),
            "{few}"
        );
        recording.faults[0].samples = 30;
        assert!(text(&recording).contains("of them are ") && !text(&recording).contains("certain"));
    }

    #[test]
    fn shares_that_rest_on_few_samples_are_called_rough_at_once() {
        let mut recording = recording();
        assert!(!text(&recording).contains("rough"));
        // A fifth of all is known by few, and most of what the first function has by many.
        let counted = recording.method.steps[0].minor_faults;
        let coarse = Step { minor_period: 503, minor_faults: counted / 4, ..recording.method.steps[0] };
        let of_few =
            Faults { step: recording.method.steps.len(), samples: 29, weight: 29.0, ..recording.faults[0] };
        recording.counters.user.minor += coarse.minor_faults;
        recording.method.steps.push(coarse);
        recording.faults.push(of_few);
        let rough = text(&recording);
        assert!(
            rough.contains("of them are ") && rough.contains("\nShares are rough: 29 samples stand"),
            "{rough}"
        );
    }
}
