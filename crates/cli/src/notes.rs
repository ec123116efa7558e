//! What a command that goes on for long says on standard error: each thing once, however often it happens.

use std::collections::HashSet;

use crate::say;

/// Kinds of notes that are told; a service that runs for months has no more to say.
const MOST: usize = 100;

/// What was told already.
#[derive(Debug, Default)]
pub struct Told {
    kinds: HashSet<String>,
}

impl Told {
    /// Says it, if nothing like it was said before.
    pub fn tell(&mut self, note: &str) {
        if self.is_new(note) {
            say(note);
        }
    }

    /// The same of another process is not another note.
    fn is_new(&mut self, note: &str) -> bool {
        let kind: String = note.chars().filter(|letter| !letter.is_ascii_digit()).collect();
        self.kinds.len() < MOST && self.kinds.insert(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_of_another_process_is_not_said_again_and_there_is_an_end_to_it() {
        let mut told = Told::default();
        assert!(told.is_new("process 7 is odd") && !told.is_new("process 8 is odd"));
        let new = (0..2 * MOST).filter(|length| told.is_new(&"x".repeat(*length))).count();
        assert_eq!(new, MOST - 1);
    }
}
