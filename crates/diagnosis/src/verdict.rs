//! What the comparison says, in one sentence, and the line to use from now on.

use faultless_records::allocator::Allocator;
use faultless_records::measurement::{Ending, Measurement};
use faultless_records::quantity::{ratio, size, whole};

use crate::effect::{Effect, Figures, Judgement, LEAST_TIME};
use crate::setting::Setting;
use crate::spread::Change;

/// What an arm is to the comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// The command in the user's own environment: what all others are compared with.
    AsIs,
    /// The same without the user's own settings of malloc.
    Defaults,
    /// libc with these settings.
    Libc(Vec<Setting>),
    /// Our allocator.
    Faultless,
}

/// One arm with everything measured of it.
#[derive(Debug, Clone)]
pub struct ArmResult {
    /// Name in the table.
    pub name: String,
    /// What it is to the comparison.
    pub role: Role,
    /// Its runs, in the order of the rounds.
    pub runs: Vec<Measurement>,
}

/// What the figures of all arms are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All of the command.
    All,
    /// A part: it left processes to themselves.
    Part,
    /// Other work than the command's, or the work of processes that no arm reaches: so it seems.
    Doubtful,
    /// Runs of which the kernel killed some for want of memory.
    Killed,
}

/// What minor faults are measured by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Yardstick {
    /// What each brings in, at least.
    pub page_bytes: u64,
    /// What several processes have at their own peaks, together: each brings its memory in once. Nothing of a single one.
    pub peaks_bytes: u64,
}

/// One arm's figures, and its effect where it has one.
#[derive(Debug, Clone)]
pub struct ArmVerdict {
    /// The figures over its runs.
    pub figures: Figures,
    /// Against the command as it is; none for that itself, and where the figures do not compare.
    pub effect: Option<Effect>,
}

/// The outcome of a comparison.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// One for each arm, in their order.
    pub arms: Vec<ArmVerdict>,
    /// The whole in one sentence (and one for each arm that ended otherwise).
    pub sentence: String,
    /// The best settings of libc; none when no setting helps.
    pub best_libc: Option<usize>,
    /// Whether Faultless helps.
    pub faultless_helps: bool,
    /// Whether nothing that was tried takes away faults that bring in the memory many times over.
    pub faults_stay: bool,
    /// Whether all runs of all arms ended the same way.
    pub endings_agree: bool,
}

/// A setting nearly as good as the best is preferred when it sets less.
const NEARLY: f64 = 1.05;

/// From here on memory was faulted in again, beyond what starting a program takes.
const MANY_TIMES_OVER: f64 = 3.0;

/// Judges all arms against the one as it is, by figures of such a scope.
///
/// `None` when no arm is as it is or an arm has no runs.
#[must_use]
pub fn judge(arms: &[ArmResult], scope: Scope, yardstick: Yardstick) -> Option<Verdict> {
    let base_place = arms.iter().position(|arm| arm.role == Role::AsIs)?;
    let figures: Option<Vec<Figures>> = arms.iter().map(|arm| Figures::of(&arm.runs)).collect();
    let figures = figures?;
    let base = figures[base_place].clone();
    let as_is = &arms[base_place];
    let obstacles: Vec<Option<Obstacle>> = arms.iter().map(|arm| Obstacle::of(arm, as_is, scope)).collect();
    let verdicts: Vec<ArmVerdict> = figures
        .into_iter()
        .enumerate()
        .map(|(place, figures)| ArmVerdict {
            effect: (place != base_place && obstacles[place].is_none())
                .then(|| Effect::of(&arms[place].runs, &as_is.runs))
                .flatten(),
            figures,
        })
        .collect();
    let remedies: Vec<Remedy<'_>> = arms
        .iter()
        .zip(&verdicts)
        .zip(obstacles)
        .map(|((arm, verdict), obstacle)| Remedy { arm, verdict, obstacle })
        .collect();
    let best_libc = best_libc(&remedies);
    let findings = Findings { remedies: &remedies, base: &base, best_libc, scope, yardstick };
    let lasting = findings.lasting_faults().filter(|_| !findings.something_helps() && scope == Scope::All);
    let (faultless_helps, faults_stay) = (findings.faultless_helps(), lasting.is_some());
    let sentence = findings.sentence(lasting);
    let endings_agree = do_endings_agree(arms);
    Some(Verdict { arms: verdicts, sentence, best_libc, faultless_helps, faults_stay, endings_agree })
}

/// An arm with what is known of it.
struct Remedy<'a> {
    arm: &'a ArmResult,
    verdict: &'a ArmVerdict,
    obstacle: Option<Obstacle>,
}

/// Why an arm's figures say nothing of what it tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Obstacle {
    /// The kernel killed it for want of memory: how far it came by then, and what it had, is chance.
    Killed,
    /// The command did not end as it does by itself, so it may have done other work.
    EndedOtherwise,
    /// The process that remained at the end had not loaded Faultless.
    NotLoaded,
}

impl Obstacle {
    fn of(arm: &ArmResult, as_is: &ArmResult, scope: Scope) -> Option<Self> {
        let is_another = |run: &Measurement| run.allocator().is_some_and(|ran| ran != Allocator::Faultless);
        if scope == Scope::Killed && is_killed(arm) {
            Some(Self::Killed)
        } else if !end_alike(arm, as_is) {
            Some(Self::EndedOtherwise)
        } else if arm.role == Role::Faultless && arm.runs.iter().any(is_another) {
            Some(Self::NotLoaded)
        } else {
            None
        }
    }

    fn in_words(self) -> &'static str {
        match self {
            Self::Killed => "was killed, so its figures do not compare",
            Self::EndedOtherwise => "ended otherwise, so its figures do not compare",
            Self::NotLoaded => {
                "was not loaded by the process that remained at the end, so its figures say nothing of it"
            }
        }
    }
}

impl Remedy<'_> {
    fn helps(&self) -> bool {
        self.verdict
            .effect
            .is_some_and(|effect| matches!(effect.judgement(), Judgement::Faster | Judgement::Smaller))
    }
}

fn ran_faultless(run: &Measurement) -> bool {
    run.allocator() == Some(Allocator::Faultless)
}

/// Whether all runs of all arms ended the same way.
#[must_use]
pub fn do_endings_agree(arms: &[ArmResult]) -> bool {
    arms.first().is_none_or(|as_is| arms.iter().all(|arm| end_alike(arm, as_is) && endings(arm).len() == 1))
}

/// Whether a run of it, or a process of one, was killed, as the kernel does for want of memory.
#[must_use]
pub fn is_killed(arm: &ArmResult) -> bool {
    arm.runs.iter().any(|run| run.ending.is_by_kill())
}

/// Whether the runs of both ended in the same ways, in whatever order.
fn end_alike(one: &ArmResult, other: &ArmResult) -> bool {
    let (one, other) = (endings(one), endings(other));
    one.len() == other.len() && one.iter().all(|ending| other.contains(ending))
}

/// The different ways in which an arm's runs ended.
#[must_use]
pub fn endings(arm: &ArmResult) -> Vec<Ending> {
    let mut endings: Vec<Ending> = Vec::new();
    for run in &arm.runs {
        if !endings.contains(&run.ending) {
            endings.push(run.ending);
        }
    }
    endings
}

/// The libc setting that helps most; of those nearly as good, the first with the fewest settings.
fn best_libc(remedies: &[Remedy<'_>]) -> Option<usize> {
    // Time before memory, and memory first where it is not bought with faults.
    let score = |place: usize| {
        let effect = remedies[place].verdict.effect?;
        Some(match (effect.judgement(), effect.faults) {
            (Judgement::Smaller, Change::More) => (2, effect.peak_ratio),
            (Judgement::Smaller, _) => (1, effect.peak_ratio),
            _ => (0, effect.processor_ratio),
        })
    };
    let settings = |place: usize| match &remedies[place].arm.role {
        Role::Libc(settings) => settings.len(),
        _ => 0,
    };
    let is_libc = |place: &usize| matches!(remedies[*place].arm.role, Role::Libc(_) | Role::Defaults);
    let candidates = (0..remedies.len()).filter(|place| is_libc(place) && remedies[*place].helps());
    let scored: Vec<(usize, (u8, f64))> =
        candidates.filter_map(|place| Some((place, score(place)?))).collect();
    let (best, (best_rank, _)) =
        *scored.iter().min_by(|(_, one), (_, other)| one.0.cmp(&other.0).then(one.1.total_cmp(&other.1)))?;
    let is_nearly_best = |place: usize| is_nearly_as_good(&remedies[place], &remedies[best]);
    scored
        .into_iter()
        .filter(|(place, (rank, _))| *rank == best_rank && is_nearly_best(*place))
        .map(|(place, _)| place)
        .min_by_key(|place| settings(*place))
}

/// Whether an arm takes hardly more time than the best one, or no more than counts anywhere, and no more memory.
fn is_nearly_as_good(remedy: &Remedy<'_>, best: &Remedy<'_>) -> bool {
    let median_s = |remedy: &Remedy<'_>| remedy.verdict.figures.processor.median;
    let best_s = median_s(best);
    let is_fast = median_s(remedy) <= (best_s * NEARLY).max(best_s + LEAST_TIME);
    let effect = Effect::of(&remedy.arm.runs, &best.arm.runs);
    is_fast && effect.is_some_and(|effect| !effect.costs_memory())
}

/// What the sentence is about.
struct Findings<'a> {
    remedies: &'a [Remedy<'a>],
    base: &'a Figures,
    best_libc: Option<usize>,
    scope: Scope,
    yardstick: Yardstick,
}

impl Findings<'_> {
    fn sentence(&self, lasting_faults: Option<String>) -> String {
        let mut clauses: Vec<String> =
            self.killed().into_iter().chain(self.opening(lasting_faults)).collect();
        let helpful_faultless = self.faultless().filter(|remedy| remedy.helps());
        clauses.extend(helpful_faultless.map(|remedy| praise("Faultless", remedy.verdict)));
        clauses.extend(self.on_libc());
        clauses.extend(self.on_others());
        one_sentence(&clauses)
    }

    /// Under which arms the kernel killed it for want of memory.
    fn killed(&self) -> Option<String> {
        let (killed, others): (Vec<_>, Vec<_>) =
            self.remedies.iter().partition(|remedy| remedy.obstacle == Some(Obstacle::Killed));
        let names = |remedies: &[&Remedy<'_>]| {
            remedies.iter().map(|remedy| remedy.arm.name.as_str()).collect::<Vec<_>>().join(", ")
        };
        match (killed.as_slice(), others.as_slice()) {
            ([], _) => None,
            (_, []) => Some("for want of memory the kernel killed it under every arm, so how much it takes is in no figure".into()),
            (killed, others) => Some(format!(
                "for want of memory the kernel killed it under {}, and not under {}",
                names(killed),
                names(others)
            )),
        }
    }

    /// The answer: what is wrong with the command as it is, or that there is nothing to do.
    fn opening(&self, lasting_faults: Option<String>) -> Vec<String> {
        // A command that is linked with Faultless, or a machine all of whose programs are started with it.
        let is_alone = self.remedies.iter().flat_map(|remedy| &remedy.arm.runs).all(ran_faultless);
        if self.something_helps() {
            let cause = cause(self.base, self.yardstick);
            vec![match self.scope {
                Scope::Doubtful | Scope::Killed => format!("in figures that are in doubt, {cause}"),
                Scope::All | Scope::Part => cause,
            }]
        } else if is_alone {
            vec!["the command runs under Faultless as it is, and no other allocator was tried".into()]
        } else if self.faultless_is_untried() || self.scope == Scope::Killed {
            vec![]
        } else {
            let nothing = nothing_helps(self.remedies, self.scope).to_owned();
            [nothing].into_iter().chain(lasting_faults).collect()
        }
    }

    /// The best settings, or that there are none although something else helps or could not be tried.
    fn on_libc(&self) -> Option<String> {
        if let Some(place) = self.best_libc {
            let Remedy { arm, verdict, .. } = &self.remedies[place];
            return Some(praise(&arm.name, verdict));
        }
        // Where the command brings another allocator along, none was tried.
        let has_settings = self.remedies.iter().any(|remedy| matches!(remedy.arm.role, Role::Libc(_)));
        let is_worth_saying = self.faultless_helps() || self.faultless_is_untried();
        (has_settings && is_worth_saying).then(|| match self.scope {
            Scope::Doubtful | Scope::Killed => "no libc setting helps, which proves little".to_owned(),
            Scope::All | Scope::Part => "no libc setting helps".to_owned(),
        })
    }

    /// A clause for each arm that is not praised.
    fn on_others(&self) -> impl Iterator<Item = String> {
        self.remedies.iter().enumerate().filter_map(|(place, remedy)| {
            let Remedy { arm, verdict, obstacle } = remedy;
            let is_praised = self.best_libc == Some(place) || (arm.role == Role::Faultless && remedy.helps());
            match (obstacle, verdict.effect) {
                // Who was killed and who was not has been said.
                (Some(Obstacle::Killed), _) => None,
                (Some(Obstacle::EndedOtherwise), _) if self.is_killed_as_is() => None,
                (Some(obstacle), _) => Some(format!("{} {}", arm.name, obstacle.in_words())),
                (None, Some(effect)) if !is_praised => {
                    let outcome = plain(&effect, &verdict.figures, self.base, self.scope);
                    Some(format!("{} {outcome}", arm.name))
                }
                _ => None,
            }
        })
    }

    fn is_killed_as_is(&self) -> bool {
        let is_killed = |remedy: &Remedy<'_>| remedy.obstacle == Some(Obstacle::Killed);
        self.remedies.iter().any(|remedy| remedy.arm.role == Role::AsIs && is_killed(remedy))
    }

    fn faultless(&self) -> Option<&Remedy<'_>> {
        self.remedies.iter().find(|remedy| remedy.arm.role == Role::Faultless)
    }

    fn faultless_helps(&self) -> bool {
        self.faultless().is_some_and(Remedy::helps)
    }

    fn faultless_is_untried(&self) -> bool {
        self.faultless().is_some_and(|remedy| remedy.obstacle == Some(Obstacle::NotLoaded))
    }

    fn something_helps(&self) -> bool {
        self.best_libc.is_some() || self.faultless_helps()
    }

    /// Faults that bring in the memory again and again, and are not fewer under another allocator nor with any setting. The figures
    /// do not tell whose they are: they may come from mappings of the command's own, from each process that starts, or from memory
    /// that lies idle for so long that every allocator gives it back.
    fn lasting_faults(&self) -> Option<String> {
        let faults = |remedy: &Remedy<'_>| remedy.verdict.effect.map(|effect| effect.faults);
        let stay = faults(self.faultless()?) == Some(Change::Same)
            && self.remedies.iter().all(|remedy| faults(remedy) != Some(Change::Less));
        let faults = many_times_over(self.base, self.yardstick).filter(|_| stay)?;
        Some(format!("its {faults}, and nothing that was tried takes them away"))
    }
}

fn one_sentence(clauses: &[String]) -> String {
    let mut text = clauses.join("; ");
    text.push('.');
    if let Some(first) = text.get(..1).map(str::to_uppercase) {
        text.replace_range(..1, &first);
    }
    text
}

fn nothing_helps(remedies: &[Remedy<'_>], scope: Scope) -> &'static str {
    let keeps_less =
        |remedy: &Remedy<'_>| remedy.verdict.effect.is_some_and(|effect| effect.final_rss == Change::Less);
    let is_less_kept = remedies.iter().any(keeps_less);
    match scope {
        Scope::All if is_less_kept => "nothing takes less time or a lower peak",
        Scope::All => "nothing helps, leave the allocator alone",
        Scope::Part => "nothing helps what was measured, which is not all that the command does",
        Scope::Doubtful if is_less_kept => {
            "nothing that was tried takes less time or a lower peak, which proves little"
        }
        Scope::Doubtful | Scope::Killed => "nothing that was tried helps, which proves little",
    }
}

/// What the command suffers from as it is, where the figures show it.
fn cause(base: &Figures, yardstick: Yardstick) -> String {
    match many_times_over(base, yardstick) {
        Some(faults) => format!("as it is, {faults} ({:.2} s of system time)", base.system.median),
        None => "the allocator makes a difference".into(),
    }
}

/// How often the faults could have brought in the whole peak resident memory, of several processes that of each, where that is often: at
/// least, as a huge page is one fault.
fn many_times_over(base: &Figures, yardstick: Yardstick) -> Option<String> {
    let (faults, page_bytes) = (base.minor_faults.median, yardstick.page_bytes as f64);
    let peak_bytes = base.peak_rss.median.max(yardstick.peaks_bytes as f64).max(page_bytes);
    let times_over = faults * page_bytes / peak_bytes;
    let whose = if yardstick.peaks_bytes > 0 { "each process's" } else { "the" };
    (times_over >= MANY_TIMES_OVER).then(|| {
        format!("{} minor faults bring in {whose} peak RSS {times_over:.0} times over", number(faults))
    })
}

/// A count in a sentence.
fn number(count: f64) -> String {
    if count >= 1e6 { format!("{:.2} million", count / 1e6) } else { whole(count) }
}

fn praise(name: &str, verdict: &ArmVerdict) -> String {
    let Some(effect) = verdict.effect else { return String::new() };
    let what = match effect.judgement() {
        Judgement::Smaller => format!("peak RSS {}", ratio(effect.peak_ratio)),
        _ => less_time(&effect),
    };
    let mut text = format!("{name} helps ({what}");
    // Where they are as many as before they are no reason.
    if effect.fault_ratio < 0.995 {
        text.push_str(&format!(", faults {}", ratio(effect.fault_ratio)));
    }
    text.push_str(&effect.reason_in_waits());
    let peak = format!("peak RSS {}", ratio(effect.peak_ratio));
    if effect.peak_rss == Change::Less && effect.judgement() != Judgement::Smaller {
        text.push_str(&format!(", {peak}"));
    }
    text.push(')');
    if let (Change::More, Some(kept)) = (effect.final_rss, verdict.figures.final_rss) {
        text.push_str(&format!(" and keeps {} to the end", size(kept.median as u64)));
    }
    if effect.peak_rss == Change::More {
        text.push_str(&format!(" at the price of {peak}"));
    }
    text
}

/// The time that is less: by the clock, where it shows there, too.
fn less_time(effect: &Effect) -> String {
    match effect.elapsed {
        Change::Less => format!("elapsed {}", ratio(effect.elapsed_ratio)),
        _ => format!("processor time {}", ratio(effect.processor_ratio)),
    }
}

fn plain(effect: &Effect, figures: &Figures, base: &Figures, scope: Scope) -> String {
    // Of a command that runs for a fixed time nothing shows in time.
    let unseen =
        if matches!(scope, Scope::Doubtful | Scope::Killed) { "" } else { ", which does not show in time" };
    let mut text = match effect.judgement() {
        Judgement::Faster => format!("helps ({})", less_time(effect)),
        Judgement::Smaller if effect.faults == Change::More => format!(
            "takes less memory (peak RSS {}) and more faults ({})",
            ratio(effect.peak_ratio),
            ratio(effect.fault_ratio)
        ),
        Judgement::Smaller => format!("takes less memory (peak RSS {})", ratio(effect.peak_ratio)),
        Judgement::FewerFaultsOnly => format!("takes fewer faults ({}){unseen}", ratio(effect.fault_ratio)),
        Judgement::NoEffect if effect.faults == Change::More => {
            format!("takes more faults ({}){unseen}", ratio(effect.fault_ratio))
        }
        Judgement::NoEffect if effect.final_rss == Change::Less => "takes as long".to_owned(),
        Judgement::NoEffect => "has no effect beyond the noise".to_owned(),
        Judgement::Larger => format!("is worse (peak RSS {}, no faster)", ratio(effect.peak_ratio)),
        Judgement::Slower => {
            let (elapsed, processor) = (ratio(effect.elapsed_ratio), ratio(effect.processor_ratio));
            format!("is worse (elapsed {elapsed}, processor time {processor}{})", effect.reason_in_waits())
        }
    };
    if let (Some(kept), Some(kept_as_is)) = (figures.final_rss, base.final_rss) {
        let [kept, kept_as_is] = [kept, kept_as_is].map(|spread| size(spread.median as u64));
        match effect.final_rss {
            Change::More => text.push_str(&format!(" and keeps {kept} to the end")),
            Change::Less => {
                let is_worse = matches!(effect.judgement(), Judgement::Larger | Judgement::Slower);
                let and = if is_worse { "but" } else { "and" };
                text.push_str(&format!(" {and} keeps only {kept} to the end, not {kept_as_is}"));
            }
            Change::Same => {}
        }
    }
    text
}

#[cfg(test)]
mod tests;
