//! The live chart: the terminal, its keys, and its return to what it was.

use std::io::{self, Stdout};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use faultless_diagnosis::history::History;
use faultless_probe::clock::unix_s;
use faultless_probe::{signals, wakeup};
use faultless_report::plot;
use faultless_report::watch_view::{Key, View, points_csv};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal::{self, EnterAlternateScreen, LeaveAlternateScreen};
use ratatui::crossterm::{cursor, execute};

use crate::failure::Failure;
use crate::output_file::OutputFile;
use crate::watch_audience::Onlooker;
use crate::watch_chart;
use crate::watch_session::Wish;

/// Time from one picture to the next while no key is pressed.
const PICTURE_EVERY: Duration = Duration::from_millis(250);

/// Numbers of the signals that keys stand for, on every Linux.
const SIGHUP: i32 = 1;
const SIGINT: i32 = 2;
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

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
    view: View,
    /// What the last key did, where that is not to be seen.
    message: String,
    drawn: Option<Instant>,
    drawn_s: f64,
    is_stale: bool,
    requests_to_end: u32,
    has_gone: bool,
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// [`Failure::Failed`] when it is none, or refuses.
    pub fn open() -> Result<Self, Failure> {
        let failed = |error: io::Error| {
            restore();
            Failure::Failed(format!("cannot draw on this terminal: {error} (--lines prints lines)"))
        };
        take().map_err(failed)?;
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout())).map_err(failed)?;
        Ok(Self {
            terminal,
            view: View::default(),
            message: String::new(),
            drawn: None,
            drawn_s: -1.0,
            is_stale: true,
            requests_to_end: 0,
            has_gone: false,
        })
    }

    fn press(&mut self, key: KeyEvent, history: &History) -> Wish {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        self.message.clear();
        match key.code {
            KeyCode::Char('c') if is_control => return self.request_end(SIGINT),
            KeyCode::Char('z') if is_control => self.pause_process(),
            KeyCode::Char('l') if is_control => {
                let _ = self.terminal.clear();
            }
            KeyCode::Char('q') => return self.request_end(SIGTERM),
            KeyCode::Esc if self.view.has_help => self.view.has_help = false,
            KeyCode::Char('e') => self.message = export(&self.view, history),
            code => {
                if let Some(key) = meaning(code) {
                    self.view.press(key, history);
                }
            }
        }
        Wish::GoOn
    }

    /// A command that does not listen is killed at the third request.
    fn request_end(&mut self, signal: i32) -> Wish {
        self.requests_to_end += 1;
        self.message = "waiting for the command to end (q again to kill it)".into();
        Wish::End(if self.requests_to_end > 2 { SIGKILL } else { signal })
    }

    /// Nobody looks on any more: as when a terminal is closed, a command is told once.
    fn leave_once(&mut self) -> Wish {
        self.requests_to_end += 1;
        if self.requests_to_end == 1 { Wish::End(SIGHUP) } else { Wish::GoOn }
    }

    /// As Ctrl-Z does elsewhere: the shell gets its terminal until we are continued.
    fn pause_process(&mut self) {
        restore();
        signals::stop_self();
        let _ = take();
        let _ = self.terminal.clear();
    }
}

impl Onlooker for Screen {
    fn input(&self) -> Option<BorrowedFd<'_>> {
        // Safe to borrow for as long as we live: nobody closes standard input.
        (!self.has_gone).then(|| STDIN.as_fd())
    }

    fn answer(&mut self, history: &History) -> Wish {
        let mut wish = Wish::GoOn;
        // Asked first: reading keys of a terminal that was closed would never come to an end.
        self.has_gone |= wakeup::is_hung_up(STDIN.as_fd());
        if self.has_gone {
            return self.leave_once();
        }
        loop {
            let is_there = event::poll(Duration::ZERO);
            match is_there.and_then(|is_there| is_there.then(event::read).transpose()) {
                Ok(None) => return wish,
                Ok(Some(Event::Key(key))) if key.kind != KeyEventKind::Release => {
                    if let Wish::End(signal) = self.press(key, history) {
                        wish = Wish::End(signal);
                    }
                }
                Ok(Some(_)) => {}
                Err(_) => {
                    // The terminal has gone; whatever is watched goes on.
                    self.has_gone = true;
                    return self.leave_once();
                }
            }
            self.is_stale = true;
        }
    }

    fn show(&mut self, history: &History) {
        let is_due = self.drawn.is_none_or(|drawn| drawn.elapsed() >= PICTURE_EVERY);
        if !self.is_stale && (!is_due || self.drawn_s == history.latest_s) {
            return;
        }
        let (view, message) = (&self.view, &self.message);
        // A terminal that has gone says so here, also where SIGHUP is ignored.
        self.has_gone |=
            self.terminal.draw(|frame| watch_chart::draw(frame, history, view, message)).is_err();
        (self.drawn, self.drawn_s, self.is_stale) = (Some(Instant::now()), history.latest_s, false);
    }

    fn lingers(&self) -> bool {
        self.requests_to_end == 0 && !self.has_gone
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Standard input, which lives as long as we do.
static STDIN: std::sync::LazyLock<io::Stdin> = std::sync::LazyLock::new(io::stdin);

fn take() -> io::Result<()> {
    terminal::enable_raw_mode()?;
    // ORDERING: Relaxed; as in restore.
    IS_SHOWN.store(true, Ordering::Relaxed);
    execute!(io::stdout(), EnterAlternateScreen, cursor::Hide)
}

fn meaning(code: KeyCode) -> Option<Key> {
    Some(match code {
        KeyCode::Char(' ' | 'p') => Key::Pause,
        KeyCode::Char('+' | '=' | 'i') => Key::ZoomIn,
        KeyCode::Char('-' | 'o') => Key::ZoomOut,
        KeyCode::Char('w') => Key::Whole,
        KeyCode::Left | KeyCode::Char('h') | KeyCode::PageUp => Key::Earlier,
        KeyCode::Right | KeyCode::Char('l') | KeyCode::PageDown => Key::Later,
        KeyCode::Home => Key::First,
        KeyCode::End => Key::Latest,
        KeyCode::Tab | KeyCode::Char('m') => Key::NextMetric,
        KeyCode::BackTab | KeyCode::Char('M') => Key::PreviousMetric,
        KeyCode::Char('0') => Key::Overview,
        KeyCode::Char(digit @ '1'..='9') => Key::Metric(digit as usize - '1' as usize),
        KeyCode::Up | KeyCode::Char('k') => Key::Up,
        KeyCode::Down | KeyCode::Char('j') => Key::Down,
        KeyCode::Enter => Key::Alone,
        KeyCode::Char('?') | KeyCode::F(1) => Key::Help,
        _ => return None,
    })
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
