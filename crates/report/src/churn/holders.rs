//! Who holds what lives at the end, in a sentence.

use faultless_diagnosis::churn::holders::{Holder, MUCH};
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
    held_when(holders, all_bytes, ["Who asked for them", "They were asked for", "asked for"])
}

fn held_when(holders: &[Holder], all_bytes: f64, [who, it_is_held, holds]: [&str; 3]) -> String {
    let Some(first) = holders.first() else { return String::new() };
    let part = |holder: &Holder| percent((holder.bytes / all_bytes).min(1.0));
    let of = |holder: &Holder| {
        let function = shortened(&plain(&holder.function));
        let caller =
            holder.called_by.as_ref().map(|caller| format!(", called by {}", shortened(&plain(caller))));
        (function, caller.unwrap_or_default())
    };
    let named = |holder: &Holder| {
        let (function, caller) = of(holder);
        format!("{function} {} ({}{caller})", size(holder.bytes.round() as u64), part(holder))
    };
    let much: Vec<String> =
        holders.iter().filter(|holder| holder.bytes >= all_bytes * MUCH).take(NAMED).map(named).collect();
    let known_bytes: f64 = holders.iter().map(|holder| holder.bytes).sum();
    match much.as_slice() {
        [] if known_bytes < all_bytes / 2.0 => String::new(),
        [] => {
            let (function, caller) = of(first);
            let holders = several(holders.len() as u64, "function");
            format!("{it_is_held} by {holders}, of which {function} {holds} most: {}{caller}.\n", part(first))
        }
        much => {
            // Somebody who is not known may hold more than all who are named.
            let unknown_bytes = all_bytes - known_bytes;
            let unknown = match unknown_bytes > first.bytes {
                true => format!("; of {} it is not known", percent(unknown_bytes / all_bytes)),
                false => String::new(),
            };
            format!("{who}: {}{unknown}.\n", much.join("; "))
        }
    }
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
}
