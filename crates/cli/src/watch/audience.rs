//! Who takes the lines of `faultless watch`: the history, readers and recordings, and somebody at a terminal.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use faultless_diagnosis::history::History;
use faultless_probe::signals::Signals;
use faultless_records::recording::Line;

use super::outlets::Outlets;
use super::session::{Audience, Wish};

/// Somebody who looks on, with an input of their own.
pub trait Onlooker {
    /// Can be read when they want something.
    fn input(&self) -> Option<BorrowedFd<'_>>;
    /// Takes in what they want.
    fn answer(&mut self, history: &History) -> Wish;
    /// Shows what is new.
    fn show(&mut self, history: &History);
    /// Whether they want to go on looking when nothing more will come; to be asked again now and then.
    fn lingers(&mut self) -> bool;
}

/// Nobody.
pub struct Nobody;

impl Onlooker for Nobody {
    fn input(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    fn answer(&mut self, _: &History) -> Wish {
        Wish::GoOn
    }
    fn show(&mut self, _: &History) {}
    fn lingers(&mut self) -> bool {
        false
    }
}

/// All of them.
pub struct Watchers {
    /// Everything seen.
    pub history: History,
    /// Read along.
    pub outlets: Outlets,
    /// Looks on.
    pub onlooker: Box<dyn Onlooker>,
}

impl Audience for Watchers {
    fn take(&mut self, line: Line) {
        match self.history.add(line.clone()) {
            Ok(()) => self.outlets.write(&line, &self.history),
            Err(reason) => crate::say(&format!("a line was left out: {reason}")),
        }
    }

    fn show(&mut self) {
        self.outlets.flush();
        self.onlooker.show(&self.history);
    }

    fn input(&self) -> Option<BorrowedFd<'_>> {
        self.onlooker.input()
    }

    fn answer(&mut self) -> Wish {
        self.onlooker.answer(&self.history)
    }

    fn lingers(&mut self) -> bool {
        self.onlooker.lingers()
    }

    fn waits_for(&self) -> Option<BorrowedFd<'_>> {
        self.outlets.waits_for()
    }

    fn is_behind(&self) -> bool {
        self.outlets.is_behind()
    }

    fn has_gone(&self) -> bool {
        self.outlets.are_closed()
    }

    fn drain(&mut self, signals: &Signals, limit: Option<Duration>) -> io::Result<Option<i32>> {
        self.outlets.drain(signals, limit)
    }
}
