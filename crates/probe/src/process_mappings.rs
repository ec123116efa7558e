//! What a process has mapped, read until it is in order.

use faultless_records::mappings::{self, Mapping, MappingsError};

use crate::process::{Process, ProcessError};

/// Attempts before a file counts as damaged.
const ATTEMPTS: usize = 10;

impl Process {
    /// Its mappings, as `maps` or `smaps` tells them; [`MappingsError::Empty`] when it has ended, or becomes another program each time.
    ///
    /// # Errors
    /// [`ProcessError`] when the file cannot be read.
    pub fn mappings(&self, file: &str) -> Result<Result<Vec<Mapping>, MappingsError>, ProcessError> {
        in_order(|| self.read(file), || self.is_alive())
    }
}

/// The kernel writes such a file piece by piece. What the process maps between two pieces can lie below the end of the first; and one
/// that becomes another program after the file was opened has nothing more in it.
fn in_order<E>(
    mut read: impl FnMut() -> Result<Vec<u8>, E>,
    is_alive: impl Fn() -> bool,
) -> Result<Result<Vec<Mapping>, MappingsError>, E> {
    for _ in 1..ATTEMPTS {
        match mappings::parse(&read()?) {
            Err(MappingsError::Disorder { .. }) => {}
            Err(MappingsError::Empty | MappingsError::Truncated) if is_alive() => {}
            parsed => return Ok(parsed),
        }
    }
    Ok(mappings::parse(&read()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOW: &str = "10000-20000 rw-p 00000000 00:00 0\n";
    const HIGH: &str = "20000-40000 rw-p 00000000 00:00 0\n";
    const BETWEEN: &str = "30000-50000 rw-p 00000000 00:00 0\n";

    #[test]
    fn what_was_mapped_between_two_pieces_of_the_file_is_read_again() {
        let mut texts = [[LOW, HIGH, BETWEEN].concat(), [LOW, HIGH].concat()].into_iter();
        let read = in_order(|| texts.next().map(String::into_bytes).ok_or(()), || true).unwrap();
        assert_eq!(read.unwrap().len(), 2);
    }

    #[test]
    fn a_file_that_stays_in_disorder_is_damaged_and_an_empty_one_of_a_process_that_ended() {
        let damaged = in_order(|| Ok::<_, ()>([HIGH, LOW].concat().into_bytes()), || true).unwrap();
        assert_eq!(damaged, Err(MappingsError::Disorder { number: 2 }));
        let mut texts = [String::new(), LOW.to_owned()].into_iter();
        let ended = in_order(|| texts.next().map(String::into_bytes).ok_or(()), || false).unwrap();
        assert_eq!(ended, Err(MappingsError::Empty));
    }

    #[test]
    fn an_empty_or_short_file_of_a_process_that_lives_is_read_again() {
        let mut texts = [String::new(), LOW.to_owned(), [LOW, HIGH].concat()].into_iter();
        let read = in_order(|| texts.next().map(String::into_bytes).ok_or(()), || true).unwrap();
        assert_eq!(read.unwrap().len(), 2);
        assert_eq!(in_order(|| Ok::<_, ()>(Vec::new()), || true).unwrap(), Err(MappingsError::Empty));
    }
}
