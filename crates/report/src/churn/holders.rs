//! Who holds what lives at the end, in a sentence.

use faultless_diagnosis::churn::holders::{Holder, MUCH, Outliving};
use faultless_records::quantity::{percent, several, size};

use crate::faults::table::shortened;
use crate::plain::plain;

/// Holders named.
const NAMED: usize = 3;

/// Those who hold much of so many bytes; where nobody does, how many hold them and who is the first. Nothing where it is
/// not known of most.
pub fn held(holders: &[Holder], all_bytes: f64) -> String {
    held_when(holders, all_bytes, ["Who holds it", "It is held", "holds"])
}

/// The same of the moment when most lived.
pub fn held_at_peak(holders: &[Holder], all_bytes: f64) -> String {
    held_when(holders, all_bytes, ["Who held that", "It was held", "held"])
}

/// The same of blocks of which nobody knows what became of them.
pub fn asked_for(holders: &[Holder], all_bytes: f64) -> String {
    held_when(holders, all_bytes, ASKED_FOR)
}

/// The same of blocks that lived when a stretch of looking ended: each with how much of what it asked for that is, and those first that
/// keep what they ask for, as a leak does.
pub fn asked_for_outliving(outliving: &[Outliving], all_bytes: f64) -> String {
    let all_weight: f64 = outliving.iter().map(Outliving::weight).sum();
    let is_much =
        |one: &&Outliving| one.weight() >= all_weight * MUCH || one.holder.bytes >= all_bytes * MUCH;
    let named = |one: &Outliving| {
        let part = match percent(one.part).as_str() {
            "100.0 %" => "all that it asked for".to_owned(),
            part => format!("{part} of what it asked for"),
        };
        named(&one.holder, all_bytes, &format!("; {part}"))
    };
    let much = outliving.iter().filter(is_much).take(NAMED).map(named).collect();
    let holders: Vec<&Holder> = outliving.iter().map(|one| &one.holder).collect();
    told(&holders, much, all_bytes, ASKED_FOR)
}

const ASKED_FOR: [&str; 3] = ["Who asked for them", "They were asked for", "asked for"];

fn held_when(holders: &[Holder], all_bytes: f64, words: [&str; 3]) -> String {
    let holders: Vec<&Holder> = holders.iter().collect();
    let much = holders.iter().filter(|holder| holder.bytes >= all_bytes * MUCH).take(NAMED);
    let much = much.map(|holder| named(holder, all_bytes, "")).collect();
    told(&holders, much, all_bytes, words)
}

/// Its name, and who called it.
fn names(holder: &Holder) -> (String, String) {
    let called_by = |caller: &String| format!(", called by {}", shortened(&plain(caller)));
    (shortened(&plain(&holder.function)), holder.called_by.as_ref().map(called_by).unwrap_or_default())
}

fn part(holder: &Holder, all_bytes: f64) -> String {
    percent((holder.bytes / all_bytes).min(1.0))
}

fn named(holder: &Holder, all_bytes: f64, of_its_own: &str) -> String {
    let (function, caller) = names(holder);
    let part = part(holder, all_bytes);
    format!("{function} {} ({part}{of_its_own}{caller})", size(holder.bytes.round() as u64))
}

/// Those who are named because they hold much; where nobody is, how many there are and who is the first.
fn told(
    holders: &[&Holder],
    much: Vec<String>,
    all_bytes: f64,
    [who, it_is_held, holds]: [&str; 3],
) -> String {
    // Of equals the first.
    let most = holders.iter().rev().max_by(|one, other| one.bytes.total_cmp(&other.bytes));
    let Some(most) = most else { return String::new() };
    let known_bytes: f64 = holders.iter().map(|holder| holder.bytes).sum();
    if !much.is_empty() {
        // Somebody who is not known may hold more than all who are named.
        let unknown_bytes = all_bytes - known_bytes;
        let unknown = match unknown_bytes > most.bytes {
            true => format!("; of {} it is not known", percent(unknown_bytes / all_bytes)),
            false => String::new(),
        };
        return format!("{who}: {}{unknown}.\n", much.join("; "));
    }
    if known_bytes < all_bytes / 2.0 {
        return String::new();
    }
    let (function, caller) = names(most);
    let (holders, part) = (several(holders.len() as u64, "function"), part(most, all_bytes));
    format!("{it_is_held} by {holders}, of which {function} {holds} most: {part}{caller}.\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(function: &str, bytes: f64) -> Holder {
        Holder { function: function.into(), called_by: Some("main".into()), bytes }
    }

    #[test]
    fn who_holds_much_is_named_and_where_nobody_does_how_many_hold_it() {
        let (leak, small) = (holder("leak", 3072.0), holder("small", 10.0));
        let holders = [leak, small];
        assert_eq!(held(&holders, 4096.0), "Who holds it: leak 3 KiB (75.0 %, called by main).\n");
        let of_part = "Who holds it: leak 3 KiB (30.0 %, called by main); of 69.9 % it is not known.\n";
        assert_eq!(held(&holders, 10240.0), of_part, "another may hold more");
        let many: Vec<Holder> = (0..20).map(|number| holder(&format!("m{number}"), 50.0)).collect();
        let expected = "It is held by 20 functions, of which m0 holds most: 5.0 %, called by main.\n";
        assert_eq!(held(&many, 1000.0), expected);
        assert_eq!(held(&many, 3000.0), "", "of most it is not known");
        assert_eq!(held(&[], 0.0), "");
    }

    #[test]
    fn who_keeps_what_it_asks_for_is_named_before_who_asks_for_much_that_lives_shortly() {
        let outliving = |function, bytes, part| Outliving { holder: holder(function, bytes), part };
        let all = [outliving("leak", 100.0, 1.0), outliving("busy", 3972.0, 0.004)];
        let says = "Who asked for them: leak 100 B (2.4 %; all that it asked for, called by main); \
                    busy 3.9 KiB (97.0 %; 0.4 % of what it asked for, called by main).\n";
        assert_eq!(asked_for_outliving(&all, 4096.0), says);
        assert_eq!(asked_for_outliving(&[], 0.0), "");
    }
}
