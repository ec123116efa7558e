//! A recorded life of spans, read from the form that `faultless_heap::trace` writes.

use faultless_heap::trace::{Event, MAGIC};

/// What happened at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// ns since the record began.
    pub at_ns: u64,
    /// What it was.
    pub event: Event,
    /// How much it was about.
    pub granules: u32,
}

const EVENTS: [Event; 8] = [
    Event::Wait,
    Event::Begin,
    Event::Take,
    Event::Give,
    Event::GiveClean,
    Event::PurgerStarts,
    Event::PurgerEnds,
    Event::End,
];

/// Reads a trace. A last word that was cut off is left out.
///
/// # Errors
/// What is wrong with it, in one line.
pub fn parse(bytes: &[u8]) -> Result<Vec<Step>, String> {
    let mut words = bytes.chunks_exact(8).map(|word| {
        let mut bytes = [0u8; 8];
        bytes.copy_from_slice(word);
        u64::from_le_bytes(bytes)
    });
    if words.next() != Some(MAGIC) {
        return Err("it does not begin as a trace of FAULTLESS=trace:PREFIX does".to_owned());
    }
    let mut at_ns = 0u64;
    let mut steps = Vec::new();
    for word in words {
        let Some(&event) = EVENTS.get((word >> 24 & 15) as usize) else {
            return Err(format!("word {} is no event that this version knows", steps.len() + 2));
        };
        at_ns = at_ns.saturating_add(word >> 28);
        steps.push(Step { at_ns, event, granules: (word & 0xff_ffff) as u32 });
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn times_add_up_and_a_cut_word_is_left_out() {
        let mut trace = bytes(&[MAGIC, 7 | 1 << 24, 5 | 2 << 24 | 10 << 28, 5 | 3 << 24 | 20 << 28]);
        trace.push(9);
        let steps = parse(&trace).unwrap();
        assert_eq!(steps[0], Step { at_ns: 0, event: Event::Begin, granules: 7 });
        assert_eq!(steps[2], Step { at_ns: 30, event: Event::Give, granules: 5 });
        assert_eq!(steps.len(), 3);
    }

    #[test]
    fn what_is_no_trace_is_refused_and_nothing_panics() {
        assert!(parse(b"").is_err() && parse(b"FLSPANS0").is_err());
        for word in [8 << 24, 9 << 24, u64::MAX >> 5, u64::MAX] {
            assert!(parse(&bytes(&[MAGIC, word])).is_err(), "{word:#x}");
        }
    }
}
