//! `faultless export`: the figures of `watch` and `heap` for Prometheus, over HTTP or as a file for node_exporter.

mod looks;
mod page;
mod server;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use faultless_diagnosis::fleet::{Fleet, Grouping};
use faultless_probe::own_memory;
use faultless_probe::process::Process;
use faultless_probe::signals::Signals;
use faultless_records::measurement::Ending;
use faultless_records::recording::Line;
use faultless_report::plain::plain;
use faultless_report::prometheus_text::Look;

use crate::examples;
use crate::failure::Failure;
use crate::followed::{self, FollowedArguments};
use crate::notes::Told;
use crate::output_file::{OutputFile, is_stream};
use crate::watch::arguments::interval;
use crate::watch::session::{Audience, Session, Times};
use crate::{say, subject, time_span};
use page::MetricsPage;
use server::Server;

/// Where figures are served unless something else is asked for: to this machine alone.
const ADDRESS: &str = "127.0.0.1:19477";

/// `faultless export`
#[derive(Debug, Args)]
#[command(after_help = examples::and_statuses("export"))]
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
    /// Look once, print the figures or write them to --textfile, which then stays, and end; with status 1 where no process fits.
    #[arg(long, conflicts_with_all = ["interval", "command"])]
    pub once: bool,
    /// Whether processes of one name make one series, or each has its own.
    #[arg(long, value_name = "WHAT", default_value = "name")]
    pub by: By,
    /// Time from one look to the next, such as 1s, 15s.
    #[arg(short, long, value_name = "DURATION", default_value = "5s", value_parser = interval)]
    pub interval: Duration,
    /// Time between two readings of PSS and exact RSS (smaps_rollup), during which a process may have to wait; 0 for none.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = time_span::parse_or_zero)]
    pub pss: Duration,
    /// Time between two looks at what malloc holds in a process, and at least 100 times as long as a look takes; 0 for none.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = time_span::parse_or_zero)]
    pub heap: Duration,
    /// Time between two looks at what the mappings of a process are (smaps), and at least 100 times as long as a look takes; 0 for none.
    #[arg(long, value_name = "DURATION", default_value = "0", value_parser = time_span::parse_or_zero)]
    pub map: Duration,
    /// A command to start and follow.
    #[arg(trailing_var_arg = true, value_name = "CMD", value_hint = clap::ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

/// What makes processes one series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    /// One series for each name: counts go on when processes end.
    Name,
    /// One series for each process, with its number, until it ends.
    Process,
}

/// Follows what the arguments name until it has ended, or a signal comes.
///
/// # Errors
/// [`Failure`].
pub fn export(arguments: &ExportArguments, signals: &Signals) -> Result<Ending, Failure> {
    own_memory::share_heap();
    subject::check_view()?;
    arguments.followed.in_words(&arguments.command)?;
    let command = followed::command_of(&arguments.command)?;
    let mut sampler = arguments.followed.sampler(arguments.pss)?;
    sampler.expect_groups_back();
    match &arguments.textfile {
        Some(path) if is_stream(path) && !arguments.once => return Err(no_file(path)),
        // Made and dropped: what cannot be written is known now.
        Some(path) if !is_stream(path) => drop(OutputFile::create(path)?),
        _ => {}
    }
    let page = Arc::new(MetricsPage::new(fleet(arguments)?, arguments.interval));
    let is_served = !arguments.once && (arguments.listen.is_some() || arguments.textfile.is_none());
    let server =
        is_served.then(|| Server::bind(arguments.listen.as_deref().unwrap_or(ADDRESS))).transpose()?;
    let launched = match command {
        Some(command) => {
            let streams = [None, None, None];
            Some(followed::start(command, streams, &mut sampler, signals)?)
        }
        None => None,
    };
    // Before the server, which takes room for as many threads as there may be.
    let looks = [(Look::Heap, arguments.heap), (Look::Map, arguments.map)];
    let looks: Vec<_> = looks.into_iter().filter(|(_, every)| !every.is_zero()).collect();
    if !arguments.once && !looks.is_empty() {
        looks::follow(Arc::clone(&page), looks.clone())?;
    }
    if let Some(server) = server {
        say(&format!("metrics at http://{}/metrics", server.address()));
        server.serve(&page)?;
    }
    let audience = Scraped {
        page: Arc::clone(&page),
        textfile: arguments.textfile.as_deref().filter(|_| !arguments.once).map(Textfile::new),
        told: Told::default(),
    };
    let limit = arguments.once.then_some(Duration::ZERO);
    let mut session = Session { sampler, audience, signals, launched: launched.as_ref() };
    let ending = session.run(Times { interval: arguments.interval, limit })?;
    if arguments.once {
        // New programs are not measured at the first look: they are hardly there. Here there is no second one.
        let pids: Vec<i32> = page.fleet().members().map(|(_, member)| member.pid).collect();
        pids.iter().for_each(|pid| session.sampler.look_closely(*pid));
        session.emit();
        looks::look_at_all(&page, &looks);
        write_once(&page.text(), arguments.textfile.as_deref())?;
        let is_sought = !arguments.followed.name.is_empty() || arguments.followed.pattern.is_some();
        // It was told. Whoever looks once by a timer learns it by the status alone.
        if is_sought && session.sampler.alive() == 0 {
            return Ok(Ending::Exited(1));
        }
    }
    Ok(ending)
}

/// Where counts of a name are to outlive its processes, what those did before us is left out: it would be an increase that nobody saw.
/// Otherwise they are the kernel's, since each process began.
fn fleet(arguments: &ExportArguments) -> Result<Fleet, Failure> {
    let grouping = match arguments.by {
        By::Name if !arguments.once => {
            let own = std::process::id().cast_signed();
            let own = Process::open(own).map_err(Failure::of_process)?;
            // Who began in the same tick, of 10 ms, may have begun before us.
            return Ok(Fleet::new(Grouping::Name, own.start_ticks() + 1));
        }
        By::Name => Grouping::Name,
        By::Process => Grouping::Process,
    };
    Ok(Fleet::new(grouping, 0))
}

fn write_once(text: &str, textfile: Option<&Path>) -> Result<(), Failure> {
    match textfile {
        Some(path) => OutputFile::create(path)?.write(text),
        // A name may hold what steers a terminal; who scrapes gets it as it is.
        None if std::io::stdout().is_terminal() => {
            crate::print(text.lines().map(|line| plain(line) + "\n").collect::<String>())
        }
        None => crate::print(text),
    }
}

fn no_file(path: &Path) -> Failure {
    Failure::Usage(format!(
        "--textfile wants a regular file, which is replaced after each look, not {}; with --once it may be a device or a pipe",
        plain(&path.to_string_lossy())
    ))
}

/// Takes the lines of the watch for those who scrape.
struct Scraped {
    page: Arc<MetricsPage>,
    textfile: Option<Textfile>,
    told: Told,
}

impl Audience for Scraped {
    fn take(&mut self, line: Line) {
        match line {
            Line::Note(note) => self.told.tell(&note.text),
            line => self.page.fleet().add(line),
        }
    }

    fn end_round(&mut self) {
        self.page.end_round();
        if let Some(textfile) = &mut self.textfile
            && let Err(Failure::Failed(reason) | Failure::Usage(reason)) = textfile.write(&self.page.text())
        {
            self.told.tell(&reason);
        }
    }

    fn show(&mut self) {}
}

/// A file that is written again and again.
struct Textfile {
    path: PathBuf,
    /// The file that we made last, by place, device and number.
    made: Option<(PathBuf, u64, u64)>,
}

impl Textfile {
    fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), made: None }
    }

    /// A disk that is full now may have room again later; until then there are no figures rather than old ones.
    fn write(&mut self, text: &str) -> Result<(), Failure> {
        let written = self.replace(text);
        if written.is_err() {
            self.remove();
        }
        written
    }

    fn replace(&mut self, text: &str) -> Result<(), Failure> {
        if is_stream(&self.path) {
            return Err(no_file(&self.path));
        }
        let file = OutputFile::create(&self.path)?;
        let place = file.place().to_owned();
        file.write(text)?;
        self.made = identity(&place).map(|(device, number)| (place, device, number));
        Ok(())
    }

    /// What another put in its place is not ours.
    fn remove(&mut self) {
        if let Some((place, device, number)) = self.made.take()
            && identity(&place) == Some((device, number))
        {
            let _ = std::fs::remove_file(&place);
        }
    }
}

impl Drop for Textfile {
    /// Figures that nobody keeps up to date would be taken for the present.
    fn drop(&mut self) {
        self.remove();
    }
}

/// Device and number of a regular file.
fn identity(place: &Path) -> Option<(u64, u64)> {
    let found = std::fs::symlink_metadata(place).ok()?;
    found.is_file().then(|| (found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn only_the_file_that_was_made_is_removed_at_its_real_place() {
        let directory = std::env::temp_dir().join(format!("faultless-textfile-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let (path, link) = (directory.join("real.prom"), directory.join("link.prom"));
        std::os::unix::fs::symlink(&path, &link).unwrap();
        fs::write(&path, "old").unwrap();
        let mut textfile = Textfile::new(&link);
        textfile.write("new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        drop(textfile);
        assert!(!path.exists() && fs::symlink_metadata(&link).unwrap().is_symlink());

        let mut textfile = Textfile::new(&path);
        textfile.write("ours").unwrap();
        let other = directory.join("other");
        fs::write(&other, "another's").unwrap();
        fs::rename(&other, &path).unwrap();
        drop(textfile);
        assert_eq!(fs::read_to_string(&path).unwrap(), "another's");
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn what_cannot_be_replaced_is_removed_rather_than_left_to_grow_old() {
        let directory = std::env::temp_dir().join(format!("faultless-unwritten-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let path = directory.join("x.prom");
        let mut textfile = Textfile::new(&path);
        textfile.write("figures").unwrap();
        // In the way of the new file, and no leftover.
        let obstacle = directory.join(format!("x.prom.{}.new", std::process::id()));
        fs::create_dir(&obstacle).unwrap();
        assert!(textfile.write("more").is_err() && !path.exists());
        fs::remove_dir(&obstacle).unwrap();
        textfile.write("later").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "later");
        drop(textfile);
        fs::remove_dir(&directory).unwrap();
    }
}
