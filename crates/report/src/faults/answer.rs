//! The answer that stands before the table of page faults.

use std::fmt::Write as _;

use faultless_diagnosis::faults::place::INHERITED;
use faultless_diagnosis::faults::profile::{Function, NOT_LOOKED_AT, Profile};
use faultless_diagnosis::faults::weight::{
    Few, OfShortLives, counted, known_by_few, of_short_lives, period_without_end,
};
use faultless_records::fault_recording::{FaultRecording, Step};
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
    let seconds = recording.observed_s();
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
    let first = first(profile);
    let doubt = Doubt::of(recording, profile);
    match (first, &doubt) {
        (Some(_), Some(doubt)) if !doubt.is_certain => {
            let _ = writeln!(text, "{}", doubt.sentence());
        }
        (Some(first), _) => text += &of_first(first, profile),
        (None, _) => {}
    }
    let unseen = unseen(profile);
    if unseen > MUCH {
        let _ = write!(text, "{} of them were not looked at, and may be of any function", percent(unseen));
        let of_lost = |step: &Step| step.lost_samples as f64 * step.minor_period as f64;
        let lost = recording.method.steps.iter().map(of_lost).sum();
        if profile.share(lost) > unseen / 2.0 {
            text += "; their samples found no room: a larger --every or a smaller --stack loses fewer";
        } else if let Some(period) = period_without_end(recording) {
            let _ = write!(text, "; --every {} looks at some", finer(period));
        }
        text.push('\n');
    }
    if let Some(doubt) = doubt.filter(|doubt| doubt.is_certain) {
        let _ = writeln!(text, "{}", doubt.sentence());
    }
    text
}

/// The same in one line, without what was observed; nothing of no fault.
pub(crate) fn in_a_line(recording: &FaultRecording) -> String {
    if counted(recording).all() == 0 {
        return String::new();
    }
    let text = answer(recording, &Profile::of(recording));
    let of_all = text.strip_prefix(&format!("{}: ", subject(recording))).unwrap_or(&text);
    of_all.trim_end().replace('\n', "; ")
}

/// Part of all faults that was not looked at.
fn unseen(profile: &Profile) -> f64 {
    let unseen = profile.functions.iter().find(|function| function.name == NOT_LOOKED_AT);
    unseen.map_or(0.0, |unseen| profile.share(unseen.amount.faults))
}

/// A function's part of the faults that were looked at.
fn share_of_seen(faults: f64, profile: &Profile) -> f64 {
    profile.share(faults) / (1.0 - unseen(profile)).max(f64::EPSILON)
}

/// The function that takes most of what was looked at.
fn first(profile: &Profile) -> Option<&Function> {
    profile.functions.iter().find(|function| function.name != NOT_LOOKED_AT)
}

/// Why samples do not say enough of functions.
pub(super) struct Doubt {
    /// Faults that may be of other functions, or that few samples stand for.
    pub faults: f64,
    /// The period that looks at more of them.
    pub every: u64,
    /// The first function takes most all the same, or no function does.
    pub is_certain: bool,
    words: String,
}

impl Doubt {
    pub fn of(recording: &FaultRecording, profile: &Profile) -> Option<Self> {
        let first = first(profile);
        let is_much = |faults: f64| profile.share(faults) > MUCH;
        let short = of_short_lives(recording);
        let is_known = first.is_none_or(|first| first.known_by_few <= first.amount.faults * MOST_BY_FEW);
        let (faults, period, words) = match known_by_few(recording) {
            Some(few) if !is_known || is_much(few.faults) => (few.faults, few.period, of_few(few)),
            _ if is_much(short.faults) => (short.faults, short.period, of_short(short)),
            _ => return None,
        };
        let stands_out = |faults: f64| share_of_seen(faults, profile) >= STANDS_OUT;
        let falls = |first: &Function| {
            stands_out(first.amount.faults) && !stands_out(first.amount.faults - short.faults)
        };
        let is_certain = is_known && !first.is_some_and(falls);
        Some(Self { faults, every: finer(period), is_certain, words })
    }

    /// It in words, with what looks at more.
    pub fn sentence(&self) -> String {
        let so = if self.is_certain { "Shares are rough" } else { "No function stands out for certain" };
        format!("{so}: {}; --every {} looks at more", self.words, self.every)
    }
}

/// Who takes most, where, and on what memory.
fn of_first(first: &Function, profile: &Profile) -> String {
    let (share, of_seen) = (profile.share(first.amount.faults), share_of_seen(first.amount.faults, profile));
    let name = shown_name(first, LONGEST_NAME);
    let mut text = if share >= STANDS_OUT {
        format!("{} of them are {name}'s", percent(share))
    } else if of_seen >= STANDS_OUT {
        format!("{} of those looked at are {name}'s", percent(of_seen))
    } else {
        format!("No function stands out; the first, {name}, takes {} of them", percent(share))
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

fn of_few(few: Few) -> String {
    let (samples, faults) = (several(few.samples, "sample"), whole(few.faults));
    let stand = if few.samples == 1 { "stands" } else { "stand" };
    format!("{samples} {stand} for {faults} of them")
}

fn of_short(short: OfShortLives) -> String {
    let faults = whole(short.faults);
    format!(
        "up to {faults} of them may be others', as short processes or threads were looked at in the same few places each time"
    )
}

/// A period that looks at enough where another did not.
fn finer(period: u64) -> u64 {
    (period / FINER).max(1)
}

fn kind_in_words(name: &str) -> String {
    if let Some(own) = name.strip_suffix(INHERITED) {
        return kind_in_words(own)
            + " that was there before the fork: each page is copied at its first write";
    }
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
    use crate::faults::tree::tests::{recording, recording_of_short_lives};
    use faultless_records::fault_recording::Faults;

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
    fn a_function_that_the_same_place_of_short_lives_speaks_for_is_not_accused() {
        let mut recording = recording_of_short_lives();
        let doubtful = text(&recording);
        assert!(
            doubtful.contains("\nNo function stands out for certain: up to 6,900 of them may be others'"),
            "{doubtful}"
        );
        assert!(doubtful.contains("; --every 2 looks at more\n"), "{doubtful}");
        // With ten periods in each life it is a tenth that may be others'.
        let step = &mut recording.method.steps[0];
        (step.minor_faults, step.ended_threads) = (100 * 53, 10);
        recording.counters.user.minor = 100 * 53;
        let certain = text(&recording);
        assert!(certain.contains("of them are ") && !certain.contains("rough"), "{certain}");
        recording.method.steps[0].ended_threads = 20;
        let rough = text(&recording);
        assert!(
            rough.contains("of them are ") && rough.contains("\nShares are rough: up to 1,060 of"),
            "{rough}"
        );
    }

    #[test]
    fn a_function_stands_out_of_what_was_looked_at_where_most_was_not() {
        let mut recording = recording();
        let first = text(&recording);
        let share = first.lines().nth(1).unwrap().split(' ').next().unwrap();
        let counted = recording.method.steps[0].minor_faults;
        let coarse = Step { minor_period: 503, minor_faults: counted * 9, ..recording.method.steps[0] };
        recording.counters.user.minor += coarse.minor_faults;
        recording.method.steps.push(Step { major_faults: 0, ..coarse });
        let of_few = text(&recording);
        assert!(of_few.contains(&format!("\n{share} % of those looked at are ")), "{first}{of_few}");
        assert!(of_few.contains(" may be of any function; --every 20 looks at some\n"), "{of_few}");
    }

    #[test]
    fn what_loses_fewer_samples_is_named_where_most_were_lost() {
        let mut lossy = recording();
        let step = &mut lossy.method.steps[0];
        let counted = step.minor_faults;
        (step.minor_faults, step.lost_samples) = (counted * 10, counted * 9 / step.minor_period);
        lossy.counters.user.minor += counted * 9;
        // A step that had hardly begun says nothing of the rest.
        let coarse = Step {
            minor_period: 503,
            minor_faults: 1,
            major_faults: 0,
            lost_samples: 0,
            ..lossy.method.steps[0]
        };
        lossy.method.steps.push(coarse);
        lossy.counters.user.minor += 1;
        let cure = " may be of any function; their samples found no room: a larger --every or a smaller --stack loses fewer\n";
        assert!(text(&lossy).contains(cure), "{}", text(&lossy));
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
