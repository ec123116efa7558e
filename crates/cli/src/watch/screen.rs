//! The live chart: the terminal, its keys, and its return to what it was.

use std::io::{self, Stdout};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use faultless_diagnosis::history::History;
use faultless_probe::clock::unix_s;
use faultless_probe::{signals, terminal as window};
use faultless_report::plot;
use faultless_report::watch::view::{View, points_csv};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::style::Print;
use ratatui::crossterm::terminal::{self, EnterAlternateScreen, LeaveAlternateScreen};
use ratatui::crossterm::{cursor, execute};

use super::audience::Onlooker;
use super::chart::{self, Subject};
use super::keys::{Keys, Press};
use super::session::Wish;
use crate::failure::Failure;
use crate::output_file::OutputFile;

/// Time from one picture to the next while no key is pressed.
const PICTURE_EVERY: Duration = Duration::from_millis(250);

/// How long a terminal has to answer where nobody has pressed a key: the way to it and back may be long.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Asks a terminal where its cursor is, which all answer that somebody can look at. Source: console_codes(4), ECMA-48's DSR.
const QUESTION: &str = "\x1b[6n";

/// Numbers of the signals that keys stand for, on every Linux.
const SIGHUP: i32 = 1;
const SIGINT: i32 = 2;
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// A command that does not listen is killed at this request to end.
const REQUESTS_TO_KILL: u32 = 3;

/// Whether the terminal is ours at this moment.
static IS_SHOWN: AtomicBool = AtomicBool::new(false);

/// Gives the terminal back as it was, if we have it; also from a panic.
pub fn restore() {
    // ORDERING: Relaxed; only the thread that draws takes and gives it, a panic of its own included.
    if IS_SHOWN.swap(false, Ordering::Relaxed) {
        let _ = terminal::disable_raw_mode();
        let _ = execute!(io::stdout(), LeaveAlternateScreen, cursor::Show);
    }
}

/// The chart on the terminal; leaves it when dropped.
pub struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    subject: Subject,
    keys: Keys,
    view: View,
    /// What the last key did, where that is not to be seen.
    message: String,
    drawn: Option<Instant>,
    drawn_s: f64,
    /// Columns and rows of what was drawn.
    drawn_size: Option<(usize, usize)>,
    is_stale: bool,
    requests_to_end: u32,
    has_gone: bool,
    /// When the terminal was asked whether somebody is there.
    asked: Option<Instant>,
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// [`Failure::Failed`] when it is none, or refuses.
    pub fn open(subject: Subject) -> Result<Self, Failure> {
        let failed = |error: io::Error| {
            restore();
            Failure::Failed(format!("cannot draw on this terminal: {error} (--lines prints lines)"))
        };
        take().map_err(failed)?;
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout())).map_err(failed)?;
        Ok(Self {
            terminal,
            subject,
            keys: Keys::default(),
            view: View::default(),
            message: String::new(),
            drawn: None,
            drawn_s: -1.0,
            drawn_size: None,
            is_stale: true,
            requests_to_end: 0,
            has_gone: false,
            asked: None,
        })
    }

    fn press(&mut self, press: Press, history: &History) -> Wish {
        self.message.clear();
        self.view.follow(history);
        match press {
            Press::Interrupt => return self.request_end(SIGINT, history),
            Press::Leave => return self.request_end(SIGTERM, history),
            Press::Stop => self.pause_process(),
            Press::Redraw => {
                let _ = self.terminal.clear();
            }
            Press::Escape => self.view.has_help = false,
            Press::Export => self.message = export(&self.view, history),
            Press::View(key) => self.view.press(key, history),
        }
        self.is_stale = true;
        Wish::GoOn
    }

    fn request_end(&mut self, signal: i32, history: &History) -> Wish {
        self.requests_to_end += 1;
        self.is_stale = true;
        if self.subject == Subject::Command && !chart::have_all_ended(history) {
            self.message = waiting(self.requests_to_end);
        }
        Wish::End(if self.requests_to_end < REQUESTS_TO_KILL { signal } else { SIGKILL })
    }

    /// Nobody looks on any more: as when a terminal is closed, a command is told once.
    fn leave_once(&mut self) -> Wish {
        self.requests_to_end += 1;
        if self.requests_to_end == 1 { Wish::End(SIGHUP) } else { Wish::GoOn }
    }

    /// As Ctrl-Z does elsewhere: the shell gets its terminal until we are continued.
    fn pause_process(&mut self) {
        restore();
        signals::stop_job();
        let _ = take();
        let _ = self.terminal.clear();
    }
}

impl Onlooker for Screen {
    fn input(&self) -> Option<BorrowedFd<'_>> {
        // Safe to borrow for as long as we live: nobody closes standard input. That it has gone is still to be told, and wakes who
        // waits.
        (!self.has_gone || self.requests_to_end == 0).then(|| STDIN.as_fd())
    }

    fn answer(&mut self, history: &History) -> Wish {
        let presses = match self.has_gone {
            true => Err(io::ErrorKind::UnexpectedEof.into()),
            false => self.keys.read(),
        };
        let Ok(presses) = presses else {
            // The terminal has gone; whatever is watched goes on.
            self.has_gone = true;
            return self.leave_once();
        };
        let mut wish = Wish::GoOn;
        for press in presses {
            if let Wish::End(signal) = self.press(press, history) {
                wish = Wish::End(signal);
            }
        }
        wish
    }

    fn show(&mut self, history: &History) {
        let size = window::size();
        self.is_stale |= size != self.drawn_size;
        let is_due = self.drawn.is_none_or(|drawn| drawn.elapsed() >= PICTURE_EVERY);
        if !self.is_stale && (!is_due || self.drawn_s == history.latest_s) {
            return;
        }
        self.view.follow(history);
        let (subject, view, message) = (self.subject, &self.view, &self.message);
        // A terminal that has gone says so here, also where SIGHUP is ignored.
        let drawn = self.terminal.draw(|frame| chart::draw(frame, history, subject, view, message));
        self.has_gone |= drawn.is_err();
        (self.drawn, self.drawn_s, self.drawn_size) = (Some(Instant::now()), history.latest_s, size);
        self.is_stale = false;
    }

    /// Not on a terminal that nobody looks at, as that of script(1) in a job at night: it would never end.
    fn lingers(&mut self) -> bool {
        let stays = self.requests_to_end == 0 && !self.has_gone;
        if !stays || self.keys.has_heard {
            return stays;
        }
        let asked = *self.asked.get_or_insert_with(|| {
            let _ = execute!(io::stdout(), Print(QUESTION));
            Instant::now()
        });
        asked.elapsed() < ANSWER_WITHIN
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// What is said after so many requests to end.
fn waiting(requests: u32) -> String {
    let kills = match REQUESTS_TO_KILL.saturating_sub(requests) {
        0 => "it was killed",
        1 => "q once more kills it",
        _ => "q twice more kills it",
    };
    format!("waiting for the command to end ({kills})")
}

/// Standard input, which lives as long as we do.
static STDIN: std::sync::LazyLock<io::Stdin> = std::sync::LazyLock::new(io::stdin);

fn take() -> io::Result<()> {
    terminal::enable_raw_mode()?;
    // ORDERING: Relaxed; as in restore.
    IS_SHOWN.store(true, Ordering::Relaxed);
    execute!(io::stdout(), EnterAlternateScreen, cursor::Hide)
}

/// Writes what is shown as a picture and as CSV into the current directory; says where, or why not.
fn export(view: &View, history: &History) -> String {
    let choice = view.choice(history);
    let second = unix_s();
    let names = ["svg", "csv"].map(|ending| format!("faultless-watch-{second}.{ending}"));
    let texts = [plot::scene(history, &choice).svg(), points_csv(history, &choice)];
    for (name, text) in names.iter().zip(&texts) {
        let written = OutputFile::create(Path::new(name)).and_then(|file| file.write(text));
        if let Err(Failure::Failed(reason)) = written {
            return reason;
        }
    }
    format!("written: {}, {}", names[0], names[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_many_requests_more_kill_a_command_is_said() {
        let says = [1, 2, REQUESTS_TO_KILL].map(waiting);
        assert!(says[0].ends_with("(q twice more kills it)"), "{says:?}");
        assert!(says[1].ends_with("(q once more kills it)"), "{says:?}");
        assert!(!says[2].contains("more"), "{says:?}");
    }
}
