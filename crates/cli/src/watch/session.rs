//! Looks at processes until there is nothing more to see, and hands every line to whoever reads along.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use faultless_probe::launch::Launched;
use faultless_probe::machine::killed_for_memory;
use faultless_probe::orphans;
use faultless_probe::sampler::Sampler;
use faultless_probe::signals::Signals;
use faultless_probe::wakeup::Wakeup;
use faultless_probe::watch::{Moment, Watch};
use faultless_records::measurement::{Ending, Measurement};
use faultless_records::recording::{End, Line, Use};

use super::arguments::SHORTEST;
use crate::failure::Failure;
use crate::target;

/// How long messages of the kernel may wait when nothing depends on them.
const LEISURE: Duration = Duration::from_millis(50);

/// How soon somebody who goes on looking is asked again.
pub const ASKED_EVERY: Duration = Duration::from_millis(500);

/// How long a slow reader has when a signal asked for the end.
const FAREWELL: Duration = Duration::from_secs(2);

/// What somebody who looks on wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// That it goes on.
    GoOn,
    /// That it ends; a started command gets this signal.
    End(i32),
}

/// Who takes the lines of a watch.
pub trait Audience {
    /// Takes the next one.
    fn take(&mut self, line: Line);
    /// All lines of a round of looks are there.
    fn end_round(&mut self) {}
    /// All lines of this moment are there.
    fn show(&mut self);
    /// Can be read when somebody wants something.
    fn input(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// Takes in what they want.
    fn answer(&mut self) -> Wish {
        Wish::GoOn
    }
    /// Whether they want to go on looking when nothing more will come; to be asked again now and then.
    fn lingers(&mut self) -> bool {
        false
    }
    /// Can be written when a slow reader takes more; none when it has taken all.
    fn waits_for(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// Whether a slow reader is so far behind that nothing should be added.
    fn is_behind(&self) -> bool {
        false
    }
    /// Whether nobody is left to take a line.
    fn has_gone(&self) -> bool {
        false
    }
    /// Waits until everything is taken, but no longer than `limit`; an interruption ends the waiting, and is returned.
    ///
    /// # Errors
    /// When the kernel does not let us wait.
    fn drain(&mut self, _signals: &Signals, _limit: Option<Duration>) -> io::Result<Option<i32>> {
        Ok(None)
    }
}

/// When to look and when to stop.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// From one round to the next.
    pub interval: Duration,
    /// From the beginning to the end; none without an end.
    pub limit: Option<Duration>,
}

/// One watch.
pub struct Session<'a, Taker> {
    /// Looks.
    pub sampler: Sampler,
    /// Takes what is seen.
    pub audience: Taker,
    /// Held back signals.
    pub signals: &'a Signals,
    /// The started command.
    pub launched: Option<&'a Launched>,
}

/// Why the watching came to its end.
enum Stop {
    /// Nothing more is to be seen, the time is up, or somebody wants it so.
    Done,
    /// A signal of this number asked for it.
    Signal(i32),
}

/// How far a watch has come.
struct Course<'a> {
    /// The started command.
    watch: Option<Watch<'a>>,
    /// Its figures once it has ended.
    ended: Option<Measurement>,
    /// How many processes had been killed for want of memory when it was started.
    killed_before: Option<u64>,
    /// When everything was looked at last.
    looked: Instant,
    /// When the next round is due.
    next: Instant,
    /// When to stop; none without an end.
    end: Option<Instant>,
    /// Until then messages of the kernel wait.
    may_hear_at: Instant,
}

impl<'a> Course<'a> {
    fn new(launched: Option<&'a Launched>, times: Times) -> Self {
        let now = Instant::now();
        Self {
            watch: launched.map(|launched| Watch::new(launched, None)),
            ended: None,
            killed_before: launched.and_then(|_| killed_for_memory()),
            looked: now,
            next: now + times.interval,
            end: times.limit.map(|limit| now + limit),
            may_hear_at: now,
        }
    }

    /// The started command while it runs.
    fn running(&mut self) -> Option<&mut Watch<'a>> {
        self.watch.as_mut().filter(|_| self.ended.is_none())
    }

    fn has_running(&self) -> bool {
        self.watch.is_some() && self.ended.is_none()
    }
}

impl<Taker: Audience> Session<'_, Taker> {
    /// Looks until the end; returns how the tool is to end.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn run(&mut self, times: Times) -> Result<Ending, Failure> {
        let mut course = Course::new(self.launched, times);
        let stop = self.look_until_stop(times, &mut course)?;
        self.hand_on_the_end(&course);
        self.wait_for_command(&mut course)?;
        // Whoever asked for the end does not wait for a slow reader; others wait until the next signal.
        let patience = matches!(stop, Stop::Signal(_)).then_some(FAREWELL);
        let interrupted = self.audience.drain(self.signals, patience).map_err(lost_sight)?;
        let stop = interrupted.filter(|_| matches!(stop, Stop::Done)).map_or(stop, Stop::Signal);
        match (course.ended, stop) {
            (Some(measurement), _) => Ok(measurement.ending),
            (None, Stop::Signal(number)) if number != SIGINT => Err(Failure::Interrupted(number)),
            (None, _) => Ok(Ending::Exited(0)),
        }
    }

    fn look_until_stop(&mut self, times: Times, course: &mut Course<'_>) -> Result<Stop, Failure> {
        let wakeup = Wakeup::new(self.signals).map_err(lost_sight)?;
        self.sampler.begin(times.limit == Some(Duration::ZERO));
        course.looked = Instant::now();
        let mut has_looked = true;
        loop {
            has_looked |= self.look_if_due(times.interval, course);
            self.follow(course)?;
            self.emit();
            if std::mem::take(&mut has_looked) {
                self.audience.end_round();
            }
            self.audience.show();

            let is_over = self.is_over(course);
            if self.is_done(is_over, course) {
                return Ok(Stop::Done);
            }
            let until = if is_over { course.next.min(Instant::now() + ASKED_EVERY) } else { course.next };
            let (by_signal, by_kernel) = self.wait(&wakeup, until, course)?;
            if by_signal && let Some(number) = self.take_signals(course.running())? {
                return Ok(Stop::Signal(number));
            }
            if by_kernel || self.sampler.haste().is_some() {
                self.sampler.hear();
                let pause = if self.sampler.is_urgent() { Duration::from_millis(2) } else { LEISURE };
                course.may_hear_at = Instant::now() + pause;
            }
            if let Wish::End(signal) = self.audience.answer() {
                match self.launched {
                    Some(launched) if course.has_running() => launched.send(signal),
                    _ => return Ok(Stop::Done),
                }
            }
        }
    }

    /// The last look, and the sums.
    fn hand_on_the_end(&mut self, course: &Course<'_>) {
        // The sums are those of the end, not of an interval before it.
        if course.looked.elapsed() >= SHORTEST && !self.audience.is_behind() {
            self.sampler.last_round();
        }
        self.sampler.hear();
        let of_starved = |ended: &Measurement| {
            let figures = "its last samples and peak RSS";
            target::of_starved("the command", figures, ended.ending, course.killed_before)
        };
        if let Some(said) = course.ended.as_ref().and_then(of_starved) {
            self.sampler.note(&said);
        }
        let command = course.ended.as_ref().map(in_use);
        let cost = self.sampler.cost();
        let t = self.sampler.t();
        self.emit();
        self.audience.take(Line::End(End { t, cost, command }));
        self.audience.show();
    }

    /// A command that outlives the watching has a status to pass on.
    fn wait_for_command(&self, course: &mut Course<'_>) -> Result<(), Failure> {
        let patience = (!self.is_traced()).then_some(Duration::from_millis(20));
        while let Some(watch) = course.running() {
            if let Some(arrival) = self.signals.next(patience).map_err(lost_sight)? {
                watch.pass_on(arrival);
            }
            watch.sample();
            course.ended = watch.take_changes(&mut |_| None).map_err(lost_sight)?;
        }
        Ok(())
    }

    /// Looks if a round is due; whether it did.
    fn look_if_due(&mut self, interval: Duration, course: &mut Course<'_>) -> bool {
        if Instant::now() < course.next {
            return false;
        }
        let has_looked = self.look_or_miss(course);
        course.next = self.next_round(course.next, interval);
        if let Some(watch) = &mut course.watch {
            watch.sample();
        }
        has_looked
    }

    /// Looks, unless those who read along are behind, or the last look is about to come. Whether it did.
    fn look_or_miss(&mut self, course: &mut Course<'_>) -> bool {
        let takes_the_last = course.end.is_some_and(|end| end < Instant::now() + SHORTEST);
        if self.audience.is_behind() {
            self.sampler.miss(1);
            return false;
        }
        if takes_the_last {
            return false;
        }
        self.sampler.round();
        course.looked = Instant::now();
        true
    }

    /// Whether to stop looking; `is_over`: there was nothing more to see a moment ago.
    fn is_done(&mut self, mut is_over: bool, course: &Course<'_>) -> bool {
        if is_over {
            // The last of them may have started others that we were not told of yet.
            self.sampler.hear();
            self.emit();
            is_over = self.is_over(course) && !self.audience.lingers();
        }
        // A started command is watched for its sums, whoever reads along.
        let is_unread = self.audience.has_gone() && !course.has_running();
        is_over || is_unread || course.end.is_some_and(|end| Instant::now() >= end)
    }

    /// Waits for what comes first; whether a signal came, and whether the kernel said something.
    fn wait(&self, wakeup: &Wakeup, until: Instant, course: &Course<'_>) -> Result<(bool, bool), Failure> {
        let now = Instant::now();
        let mut until = course.end.map_or(until, |end| end.min(until));
        if let Some(haste) = self.sampler.haste() {
            until = until.min(now + haste);
        }
        let mut kernel = self.sampler.descriptor();
        if kernel.is_some() && now < course.may_hear_at {
            kernel = None;
            until = until.min(course.may_hear_at);
        }
        let others: Vec<_> = kernel.into_iter().chain(self.audience.input()).collect();
        let patience = until.saturating_duration_since(now);
        let woken = wakeup.wait(&others, self.audience.waits_for(), patience).map_err(lost_sight)?;
        Ok((woken.by_signal, kernel.is_some() && woken.by(0)))
    }

    /// Takes all signals that have arrived, for a command that runs; without one they are for us: the number of one that asks us to
    /// end.
    fn take_signals(&self, mut running: Option<&mut Watch<'_>>) -> Result<Option<i32>, Failure> {
        while let Some(arrival) = self.signals.next(Some(Duration::ZERO)).map_err(lost_sight)? {
            match &mut running {
                Some(watch) => watch.pass_on(arrival),
                None if arrival.is_interruption() => return Ok(Some(arrival.number)),
                None => {}
            }
        }
        Ok(None)
    }

    /// Takes in what became of the command while it runs, and afterwards of orphans.
    fn follow(&mut self, course: &mut Course<'_>) -> Result<(), Failure> {
        let (Some(watch), Some(launched)) = (course.running(), self.launched) else {
            orphans::wait_as_init(None);
            return Ok(());
        };
        let (pid, sampler) = (launched.pid(), &mut self.sampler);
        let mut observe = |moment| {
            match moment {
                Moment::AtExit | Moment::FirstThreadAtExit => sampler.look_closely(pid),
                Moment::Ended(status) => sampler.end(pid, status),
                Moment::Running => {}
            }
            None
        };
        course.ended = watch.take_changes(&mut observe).map_err(lost_sight)?;
        Ok(())
    }

    fn is_traced(&self) -> bool {
        self.launched.is_none_or(Launched::is_traced)
    }

    /// Whether nothing that is known is left to be looked at.
    fn is_over(&self, course: &Course<'_>) -> bool {
        self.sampler.alive() == 0 && !self.sampler.is_open() && !course.has_running()
    }

    /// The time of the round after this one; rounds whose time has passed are left out.
    fn next_round(&mut self, due: Instant, interval: Duration) -> Instant {
        let late = Instant::now().saturating_duration_since(due);
        let missed = late.as_nanos() / interval.as_nanos().max(1);
        self.sampler.miss(u64::try_from(missed).unwrap_or(0));
        due + interval * u32::try_from(missed + 1).unwrap_or(u32::MAX)
    }

    /// Hands on what the sampler has seen.
    pub fn emit(&mut self) {
        for line in self.sampler.take_lines() {
            self.audience.take(line);
        }
    }
}

/// SIGINT's number on every Linux; at a terminal it is the way to end a watch, and no failure.
const SIGINT: i32 = 2;

fn in_use(measurement: &Measurement) -> Use {
    Use {
        user_s: measurement.user.as_micros() as f64 / 1e6,
        system_s: measurement.system.as_micros() as f64 / 1e6,
        minor_faults: measurement.minor_faults,
        major_faults: measurement.major_faults,
        peak_rss_bytes: measurement.peak_rss_bytes,
    }
}

fn lost_sight(error: io::Error) -> Failure {
    Failure::Failed(format!("cannot go on watching: {error}"))
}
