//! `faultless export`: the figures of `watch` and `heap` for Prometheus, over HTTP or as a file for node_exporter.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use faultless_diagnosis::fleet::{Fleet, Grouping};
use faultless_probe::process::Process;
use faultless_probe::signals::Signals;
use faultless_records::measurement::Ending;
use faultless_records::recording::Line;
use faultless_report::prometheus_text::Look;

use crate::arguments::EXIT_STATUS;
use crate::export_looks;
use crate::export_page::Page;
use crate::export_server::Server;
use crate::failure::Failure;
use crate::followed::{self, FollowedArguments};
use crate::output_file::OutputFile;
use crate::watch_arguments::{duration, interval};
use crate::watch_session::{Audience, Session, Times};
use crate::{say, subject};

/// Where figures are served unless something else is asked for: to this machine alone.
const ADDRESS: &str = "127.0.0.1:19477";

/// Kinds of notes that are told; a service that runs for months has no more to say.
const MOST_NOTES: usize = 100;

/// `faultless export`
#[derive(Debug, Args)]
#[command(after_help = EXIT_STATUS)]
pub struct ExportArguments {
    /// Who is followed.
    #[command(flatten)]
    pub followed: FollowedArguments,
    /// Serve the figures at http://ADDRESS:PORT/metrics [default: 127.0.0.1:19477, unless --textfile or --once].
    #[arg(short, long, value_name = "ADDRESS:PORT", conflicts_with = "once")]
    pub listen: Option<String>,
    /// Write the figures to FILE after each look, for the textfile collector of node_exporter, which wants a name that ends in .prom;
    /// removed at the end.
    #[arg(short, long, value_name = "FILE")]
    pub textfile: Option<PathBuf>,
    /// Look once, print the figures or write them to --textfile, which then stays, and end.
    #[arg(long, conflicts_with_all = ["interval", "command"])]
    pub once: bool,
    /// What makes processes one series.
    #[arg(long, value_name = "WHAT", default_value = "name")]
    pub by: By,
    /// Time from one look to the next, such as 1s, 15s.
    #[arg(short, long, value_name = "TIME", default_value = "5s", value_parser = interval)]
    pub interval: Duration,
    /// Time between two readings of PSS and exact RSS (smaps_rollup), for which a process waits; 0 for none.
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = duration)]
    pub pss: Duration,
    /// Time between two looks at what malloc holds of a process, and 100 times as long as one takes; 0 for none.
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = duration)]
    pub heap: Duration,
    /// Time between two looks at what the mappings of a process are (smaps), and 100 times as long as one takes; 0 for none.
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = duration)]
    pub map: Duration,
    /// A command to start and follow.
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// What makes processes one series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    /// Their name: counts go on when processes end.
    Name,
    /// Nothing: each has its own, with its number, until it ends.
    Process,
}

/// Follows what the arguments name until it has ended, or a signal comes.
///
/// # Errors
/// [`Failure`].
pub fn export(arguments: &ExportArguments, signals: &Signals) -> Result<Ending, Failure> {
    subject::check_view()?;
    arguments.followed.in_words(&arguments.command)?;
    let program = followed::program_of(&arguments.command)?;
    let mut sampler = arguments.followed.sampler(arguments.pss)?;
    sampler.expect_groups_back();
    if let Some(path) = &arguments.textfile {
        // Made and dropped: what cannot be written is known now.
        OutputFile::create(path)?;
    }
    let page = Arc::new(Page::new(fleet(arguments)?));
    let is_served = !arguments.once && (arguments.listen.is_some() || arguments.textfile.is_none());
    let server =
        is_served.then(|| Server::bind(arguments.listen.as_deref().unwrap_or(ADDRESS))).transpose()?;
    let launched = match program {
        Some(program) => {
            let streams = [None, None, None];
            Some(followed::start(&arguments.command, program, streams, &mut sampler, signals)?)
        }
        None => None,
    };
    if let Some(server) = server {
        say(&format!("metrics at http://{}/metrics", server.address()));
        server.serve(Arc::clone(&page));
    }
    let looks = [(Look::Heap, arguments.heap), (Look::Map, arguments.map)];
    let looks: Vec<_> = looks.into_iter().filter(|(_, every)| !every.is_zero()).collect();
    if !arguments.once && !looks.is_empty() {
        export_looks::follow(Arc::clone(&page), looks.clone());
    }
    let audience = Scraped {
        page: Arc::clone(&page),
        textfile: arguments.textfile.as_deref().filter(|_| !arguments.once).map(Textfile::new),
        interval: arguments.interval,
        shown: None,
        told: HashSet::new(),
    };
    let limit = arguments.once.then_some(Duration::ZERO);
    let mut session = Session { sampler, audience, signals, launched: launched.as_ref() };
    let ending = session.run(Times { interval: arguments.interval, limit })?;
    if arguments.once {
        // New programs are not measured at the first look: they are hardly there. Here there is no second one.
        let pids: Vec<i32> = page.fleet().members().map(|(_, member)| member.pid).collect();
        pids.iter().for_each(|pid| session.sampler.look_closely(*pid));
        session.emit();
        export_looks::look_at_all(&page, &looks);
        write_once(&page.text(), arguments.textfile.as_deref())?;
    }
    Ok(ending)
}

/// Where counts of a name are to outlive its processes, what those did before us is left out: it would be an increase that nobody saw.
/// Otherwise they are the kernel's, since each process began.
fn fleet(arguments: &ExportArguments) -> Result<Fleet, Failure> {
    let grouping = match arguments.by {
        By::Name if !arguments.once => {
            let own = i32::try_from(std::process::id()).unwrap_or(0);
            let own = Process::open(own).map_err(Failure::of_process)?;
            return Ok(Fleet::new(Grouping::Name, own.start_ticks()));
        }
        By::Name => Grouping::Name,
        By::Process => Grouping::Process,
    };
    Ok(Fleet::new(grouping, 0))
}

fn write_once(text: &str, textfile: Option<&Path>) -> Result<(), Failure> {
    match textfile {
        Some(path) => OutputFile::create(path)?.write(text),
        None => std::io::stdout().write_all(text.as_bytes()).map_err(|error| Failure::of_output(&error)),
    }
}

/// Takes the lines of the watch for those who scrape.
struct Scraped {
    page: Arc<Page>,
    textfile: Option<Textfile>,
    interval: Duration,
    /// When a round was last seen to be over.
    shown: Option<Instant>,
    told: HashSet<String>,
}

impl Scraped {
    fn tell(&mut self, note: &str) {
        // The same of another process is not another note.
        let kind: String = note.chars().filter(|letter| !letter.is_ascii_digit()).collect();
        if self.told.len() < MOST_NOTES && self.told.insert(kind) {
            say(note);
        }
    }
}

impl Audience for Scraped {
    fn take(&mut self, line: Line) {
        match line {
            Line::Note(note) => self.tell(&note.text),
            line => self.page.fleet().add(line),
        }
    }

    fn show(&mut self) {
        // Once a round, a little early rather than a round late: the kernel's word comes hundreds of times a second.
        if self.shown.is_some_and(|shown| shown.elapsed() < self.interval * 9 / 10) {
            return;
        }
        self.shown = Some(Instant::now());
        if let Some(textfile) = &mut self.textfile {
            textfile.write(&self.page.text());
        }
    }
}

/// A file that is written again and again.
struct Textfile {
    path: PathBuf,
    /// The last attempt failed, which was told.
    has_failed: bool,
}

impl Textfile {
    fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), has_failed: false }
    }

    /// A disk that is full now may have room again later.
    fn write(&mut self, text: &str) {
        let written = OutputFile::create(&self.path).and_then(|file| file.write(text));
        if let (Err(Failure::Failed(message)), false) = (&written, self.has_failed) {
            say(message);
        }
        self.has_failed = written.is_err();
    }
}

impl Drop for Textfile {
    /// Figures that nobody keeps up to date would be taken for the present.
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
