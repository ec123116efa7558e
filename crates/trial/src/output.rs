//! The output of a measured command: read, dropped, and its end kept for the case that the command fails.
//!
//! A pipe and not `/dev/null`: some programs do less work when they see that nobody reads (grep stops at its first
//! match, tar does not read its files), and then another program would be measured than the one that is used.

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// How much of the end is kept.
const TAIL_BYTES: usize = 4096;

/// How long to wait for the rest after the command has ended; a process it left behind may hold the pipe open.
const REST: Duration = Duration::from_millis(200);

/// Reads a command's standard output and error to their end in a thread of its own.
#[derive(Debug)]
pub struct Drain {
    tail: Arc<Mutex<Vec<u8>>>,
    /// Disconnected when all was read.
    end: Receiver<Infallible>,
}

impl Drain {
    /// Starts reading; the files are for the command.
    ///
    /// # Errors
    /// When no pipe can be made.
    pub fn start() -> io::Result<(Self, File, File)> {
        let (reader, writer) = io::pipe()?;
        let output = File::from(OwnedFd::from(writer.try_clone()?));
        let errors = File::from(OwnedFd::from(writer));
        let tail = Arc::new(Mutex::new(Vec::new()));
        let (kept, (at_end, end)) = (Arc::clone(&tail), channel());
        thread::Builder::new().name("drain".into()).spawn(move || {
            read_to_end(reader, &kept);
            drop(at_end);
        })?;
        Ok((Self { tail, end }, output, errors))
    }

    /// The last lines, once the command has ended; of a pipe that is held open, those that were read by now.
    #[must_use]
    pub fn tail(self) -> String {
        let _ = self.end.recv_timeout(REST);
        let bytes = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).trim_end().to_owned()
    }
}

fn read_to_end(mut reader: impl Read, tail: &Mutex<Vec<u8>>) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return,
            Ok(length) => {
                let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
                tail.extend_from_slice(&buffer[length.saturating_sub(TAIL_BYTES)..length]);
                let surplus = tail.len().saturating_sub(TAIL_BYTES);
                tail.drain(..surplus);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn the_end_of_both_streams_is_kept() {
        let (drain, mut output, mut errors) = Drain::start().unwrap();
        for _ in 0..10_000 {
            output.write_all(b"line\n").unwrap();
        }
        errors.write_all(b"the reason\n").unwrap();
        drop((output, errors));
        let tail = drain.tail();
        assert!(tail.ends_with("line\nthe reason"));
        assert!(tail.len() <= TAIL_BYTES);
    }

    #[test]
    fn a_process_that_keeps_the_pipe_open_is_not_waited_for() {
        let (drain, mut output, _errors) = Drain::start().unwrap();
        output.write_all(b"the reason\n").unwrap();
        assert_eq!(drain.tail(), "the reason");
        drop(output);
    }
}
