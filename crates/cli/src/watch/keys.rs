//! The keys of the live chart: what a terminal in raw mode sends for them.
//!
//! Not left to crossterm, which reads for ever where a terminal goes away between its two looks at it, and waits for the rest of
//! a key that has come by half.

use std::io::{self, BufRead};
use std::os::fd::AsFd;
use std::time::Duration;

use faultless_probe::wakeup;
use faultless_report::watch::view::Key;

/// What each key begins with that has no letter.
const ESCAPE: u8 = 0x1b;

/// Ctrl-D, which script(1) types when its own input is at an end, and what becomes of one that was typed before we read keys.
const NOBODY: [u8; 2] = [0x04, 0];

/// The longest key that is waited for, in bytes; more is none.
const LONGEST: usize = 32;

/// A key that was pressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Press {
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-Z.
    Stop,
    /// Ctrl-L.
    Redraw,
    /// End the watch.
    Leave,
    /// Leave the help.
    Escape,
    /// Write what is shown.
    Export,
    /// Change what is shown.
    View(Key),
}

/// The keys of standard input.
#[derive(Debug, Default)]
pub struct Keys {
    /// The beginning of a key whose rest has not come.
    begun: Vec<u8>,
    /// Something came: a key, or the terminal's answer to a question.
    pub has_heard: bool,
}

impl Keys {
    /// Takes what was pressed, without waiting.
    ///
    /// # Errors
    /// The terminal has gone.
    pub fn read(&mut self) -> io::Result<Vec<Press>> {
        let mut input = io::stdin().lock();
        // A terminal that has gone can be read, and has nothing.
        if !wakeup::readable(input.as_fd(), Duration::ZERO)? {
            return Ok(Vec::new());
        }
        let bytes = match input.fill_buf() {
            Ok([]) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {
                &[]
            }
            bytes => bytes?,
        };
        self.has_heard |= bytes.iter().any(|byte| !NOBODY.contains(byte));
        let presses = self.take(bytes);
        let length = bytes.len();
        input.consume(length);
        Ok(presses)
    }

    fn take(&mut self, bytes: &[u8]) -> Vec<Press> {
        self.begun.extend_from_slice(bytes);
        let (mut presses, mut rest) = (Vec::new(), self.begun.as_slice());
        while let Some(length) = length(rest) {
            presses.extend(meaning(&rest[..length]));
            rest = &rest[length..];
        }
        self.begun = if rest.len() > LONGEST { Vec::new() } else { rest.to_vec() };
        presses
    }
}

/// Bytes of the key that these begin with; none where not all of them have come. Source: console_codes(4), ECMA-48.
fn length(bytes: &[u8]) -> Option<usize> {
    match bytes {
        [] | [ESCAPE, b'O'] => None,
        [ESCAPE, b'O', ..] => Some(3),
        [ESCAPE, b'[', rest @ ..] => {
            // Linux's console has a second bracket for F1 to F5.
            let parameters = usize::from(rest.first() == Some(&b'['));
            let last =
                parameters + rest[parameters..].iter().position(|byte| !matches!(byte, 0x20..=0x3f))?;
            // Another key, such as Ctrl-C, ends one that came by half.
            Some(2 + last + usize::from(matches!(rest[last], 0x40..=0x7e)))
        }
        // Alone it is the key of that name.
        _ => Some(1),
    }
}

/// What a whole key stands for; with Shift, Alt or Ctrl an arrow is an arrow.
fn meaning(key: &[u8]) -> Option<Press> {
    Some(Press::View(match key {
        [0x03] => return Some(Press::Interrupt),
        [0x1a] => return Some(Press::Stop),
        [0x0c] => return Some(Press::Redraw),
        b"q" => return Some(Press::Leave),
        [ESCAPE] => return Some(Press::Escape),
        b"e" => return Some(Press::Export),
        [ESCAPE, b'[', b'[', b'A'] => Key::Help,
        [ESCAPE, b'[', b'[', ..] => return None,
        [ESCAPE, b'[' | b'O', parameters @ .., last] => match (last, number(parameters)) {
            (b'A', _) => Key::Up,
            (b'B', _) => Key::Down,
            (b'C', _) => Key::Later,
            (b'D', _) => Key::Earlier,
            (b'H', _) | (b'~', Some(1 | 7)) => Key::First,
            (b'F', _) | (b'~', Some(4 | 8)) => Key::Latest,
            (b'Z', _) => Key::PreviousMetric,
            (b'~', Some(5)) => Key::Earlier,
            (b'~', Some(6)) => Key::Later,
            (b'P', _) | (b'~', Some(11)) => Key::Help,
            _ => return None,
        },
        b" " | b"p" => Key::Pause,
        b"+" | b"=" | b"i" => Key::ZoomIn,
        b"-" | b"o" => Key::ZoomOut,
        b"w" => Key::Whole,
        b"h" => Key::Earlier,
        b"l" => Key::Later,
        b"\t" | b"m" => Key::NextMetric,
        b"M" => Key::PreviousMetric,
        b"0" => Key::Overview,
        [digit @ b'1'..=b'9'] => Key::Metric(usize::from(digit - b'1')),
        b"k" => Key::Up,
        b"j" => Key::Down,
        b"\r" | b"\n" => Key::Alone,
        b"?" => Key::Help,
        _ => return None,
    }))
}

/// The first number of these parameters.
fn number(parameters: &[u8]) -> Option<u32> {
    std::str::from_utf8(parameters).ok()?.split(';').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8]) -> Vec<Press> {
        Keys::default().take(bytes)
    }

    #[test]
    fn keys_of_xterm_of_linux_and_of_rxvt_are_told_apart() {
        let view = |keys: &[Key]| keys.iter().map(|key| Press::View(*key)).collect::<Vec<_>>();
        for up in ["\x1b[A", "\x1bOA", "\x1b[1;5A", "k"] {
            assert_eq!(of(up.as_bytes()), view(&[Key::Up]), "{up:?}");
        }
        for help in ["\x1bOP", "\x1b[11~", "\x1b[[A", "\x1b[1;2P", "?"] {
            assert_eq!(of(help.as_bytes()), view(&[Key::Help]), "{help:?}");
        }
        for first in ["\x1b[H", "\x1bOH", "\x1b[1~", "\x1b[7~"] {
            assert_eq!(of(first.as_bytes()), view(&[Key::First]), "{first:?}");
        }
        assert_eq!(
            of(b"\x1b[B\x1b[5~\x1b[6;2~ \t\x1b[Z9\r"),
            view(&[
                Key::Down,
                Key::Earlier,
                Key::Later,
                Key::Pause,
                Key::NextMetric,
                Key::PreviousMetric,
                Key::Metric(8),
                Key::Alone
            ])
        );
        assert_eq!(of(b"\x03\x1a\x0cqe\x1b"), {
            use Press::{Escape, Export, Interrupt, Leave, Redraw, Stop};
            [Interrupt, Stop, Redraw, Leave, Export, Escape]
        });
    }

    #[test]
    fn what_is_no_key_of_ours_is_nothing_and_hides_none() {
        assert_eq!(of("é\u{1b}[200~x\u{1b}OQ\u{1b}[[B\x00q".as_bytes()), [Press::Leave]);
    }

    #[test]
    fn half_of_a_key_waits_for_the_rest_and_for_nothing_else() {
        let mut keys = Keys::default();
        assert_eq!(keys.take(b"q\x1b[1;"), [Press::Leave]);
        assert_eq!(keys.take(b"5C"), [Press::View(Key::Later)]);
        assert_eq!(keys.take(b"\x1b["), []);
        assert_eq!(keys.take(b"\x03"), [Press::Interrupt]);
        keys.take(b"\x1b[");
        keys.take(&[b'0'; LONGEST]);
        assert_eq!(keys.take(b"q"), [Press::Leave], "so long a key there is not");
    }
}
