//! The report of `faultless doctor` for people.

pub mod html;
pub mod json;
pub mod process;

use std::fmt::Write;

use faultless_diagnosis::environment::Finding;
use faultless_diagnosis::loaded_data::LoadedData;
use faultless_diagnosis::setting::Setting;
use faultless_diagnosis::tuning::Tuning;
use faultless_diagnosis::verdict::{ArmResult, Role, Verdict, endings};
use faultless_records::heap_report::HeapReport;
use faultless_records::measurement::{Ending, Orphan};
use faultless_records::quantity::{count, several, size};

use crate::orphans;
use crate::paste::{self, TakenOut};
use crate::plain::{fitted, plain};
use crate::table;

/// Everything a consultation brought to light.
#[derive(Debug)]
pub struct Consultation {
    /// The command in words, for the lines to paste.
    pub command: Vec<String>,
    /// Whether it is the built-in demo.
    pub is_demo: bool,
    /// The file that each run read.
    pub input: Option<String>,
    /// Version of glibc; none when it is not known.
    pub glibc: Option<(u32, u32)>,
    /// What the arms of libc's settings went without.
    pub taken_out: Vec<TakenOut>,
    /// Variables of the environment without effect.
    pub findings: Vec<Finding>,
    /// What the observing run reported.
    pub heap: Option<HeapReport>,
    /// Settings derived from it.
    pub tuning: Tuning,
    /// The case of data that is loaded and searched, where it is one.
    pub loaded_data: Option<LoadedData>,
    /// The arms with their runs.
    pub arms: Vec<ArmResult>,
    /// What they say.
    pub verdict: Verdict,
    /// Things that limit what can be concluded.
    pub remarks: Vec<String>,
    /// Why the figures may not be of what the command does.
    pub doubts: Vec<String>,
    /// The end of the command's output, when it failed.
    pub failed_output: Option<String>,
    /// Processes of the first look that are in no figure.
    pub orphans: Vec<Orphan>,
}

/// What the lines to look further tell.
const LOOK_FURTHER: &str = "To see which functions take the faults, and who maps and unmaps memory";

impl Consultation {
    /// The best settings of libc; none when no setting helps.
    #[must_use]
    pub fn best_settings(&self) -> Option<&[Setting]> {
        match &self.arms[self.verdict.best_libc?].role {
            Role::Libc(settings) => Some(settings),
            _ => Some(&[]),
        }
    }

    /// Lines to paste, the best first.
    #[must_use]
    pub fn lines_to_paste(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.verdict.faultless_helps {
            lines.push(paste::under_faultless(&self.command));
        }
        if let Some(settings) = self.best_settings() {
            lines.push(paste::with_settings(&self.taken_out, settings, &self.command));
        }
        lines.into_iter().map(|line| paste::with_input(line, self.input.as_deref())).collect()
    }

    /// Commands that tell whose the faults are which nothing takes away.
    #[must_use]
    pub fn lines_to_look_further(&self) -> Vec<String> {
        let instruments: &[&str] = if self.verdict.faults_stay { &["faults", "churn"] } else { &[] };
        let line = |instrument| format!("faultless {instrument} -- {}", paste::line(&self.command));
        instruments.iter().map(line).map(|line| paste::with_input(line, self.input.as_deref())).collect()
    }

    /// The whole report, made to fit a terminal of so many columns.
    #[must_use]
    pub fn text(&self, columns: Option<usize>) -> String {
        let fit = |text| fitted(text, columns);
        let table = table::text(&self.arms, &self.verdict, columns);
        // The lines to paste stay whole: a terminal's own wrapping does not break them.
        [
            fit(self.before_the_table()),
            table,
            fit(self.after_the_table()),
            self.to_paste(),
            self.to_look_further(),
        ]
        .concat()
    }

    fn before_the_table(&self) -> String {
        let mut text = String::new();
        if !self.findings.is_empty() {
            text.push_str("Environment\n");
            for finding in &self.findings {
                let _ = writeln!(text, "  {}", plain(&format!("{} {}", finding.variable, finding.message)));
            }
            text.push('\n');
        }
        text.push_str("Observed\n");
        for line in self.observed() {
            let _ = writeln!(text, "  {line}");
        }
        if !self.tuning.parts.is_empty() || !self.tuning.remarks.is_empty() {
            text.push_str("\nTried\n");
        }
        for part in &self.tuning.parts {
            let settings = paste::with_settings(&[], &part.settings, &[]);
            let _ =
                writeln!(text, "  {}: {settings}\n    {}", part.name.trim_end_matches(" only"), part.reason);
        }
        for remark in &self.tuning.remarks {
            let _ = writeln!(text, "  {remark}");
        }
        text.push('\n');
        text
    }

    fn after_the_table(&self) -> String {
        let mut text = format!("\n{}\n\n", table::LEGEND);
        for warning in self.warnings() {
            let _ = writeln!(text, "ATTENTION: {warning}");
        }
        for remark in &self.remarks {
            let _ = writeln!(text, "Note: {remark}");
        }
        if let Some(found) = &self.loaded_data {
            let _ = writeln!(text, "Finding: {}", found.sentences());
        }
        let _ = writeln!(text, "Verdict: {}", self.verdict.sentence);
        text
    }

    fn to_paste(&self) -> String {
        under_heading("To use it", self.lines_to_paste())
    }

    fn to_look_further(&self) -> String {
        under_heading(LOOK_FURTHER, self.lines_to_look_further())
    }

    fn observed(&self) -> Vec<String> {
        let libc = self
            .glibc
            .map_or("glibc (version not seen)".into(), |(major, minor)| format!("glibc {major}.{minor}"));
        let Some(heap) = &self.heap else { return vec![format!("{libc}; no report of the command's sizes")] };
        let mut lines = vec![format!(
            "{libc}; heap peak {}: {} in large blocks, {} in small ones; {}",
            size(heap.heap_peak_bytes),
            size(heap.large_live_peak_bytes),
            size(heap.small_live_peak_bytes),
            several(heap.threads_peak.max(1), "thread")
        )];
        let mut bins = heap.large_bins.clone();
        bins.sort_by_key(|bin| std::cmp::Reverse(bin.repeated_bytes()));
        for bin in bins.iter().filter(|bin| bin.repeats() > 0).take(3) {
            lines.push(format!(
                "blocks of {}: {}, at most {} at once, so {} {} freed and asked for again",
                size(bin.largest_bytes),
                several(bin.allocations, "allocation"),
                size(bin.peak_live_bytes),
                count(bin.repeats()),
                if bin.repeats() == 1 { "was" } else { "were" }
            ));
        }
        lines
    }

    /// What makes the comparison itself doubtful.
    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if !self.verdict.endings_agree {
            let arms = self.arms.iter().map(|arm| format!("{}: {}", arm.name, shown_endings(arm)));
            warnings.push(format!(
                "the command did not end the same way in all runs ({})",
                arms.collect::<Vec<_>>().join("; ")
            ));
        } else if let Some(arm) =
            self.arms.first().filter(|arm| !endings(arm).iter().all(|ending| is_expected(*ending)))
        {
            warnings.push(format!("the command failed in every run ({})", shown_endings(arm)));
        }
        if let Some(output) = self.failed_output.as_ref().filter(|output| !output.is_empty()) {
            let last: Vec<&str> = output.lines().rev().take(5).collect();
            let last: Vec<String> =
                last.into_iter().rev().map(|line| plain(&line.replace('\t', " "))).collect();
            warnings.push(format!("where it failed, its last output was:\n    {}", last.join("\n    ")));
        }
        warnings.extend(self.doubts.iter().map(|doubt| plain(doubt)));
        warnings.extend(orphans::in_no_figure(&self.orphans));
        warnings
    }
}

fn under_heading(heading: &str, lines: Vec<String>) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let lines: Vec<String> = lines.into_iter().map(|line| format!("  {line}\n")).collect();
    format!("\n{heading}:\n{}", lines.concat())
}

/// Success, or the end that was asked for.
fn is_expected(ending: Ending) -> bool {
    ending.is_success() || ending.is_time_limit()
}

fn shown_endings(arm: &ArmResult) -> String {
    let shown: Vec<String> = endings(arm).iter().map(ToString::to_string).collect();
    shown.join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use faultless_diagnosis::verdict::{Scope, Yardstick, judge};
    use faultless_records::measurement::{FinalView, Measurement};

    const YARDSTICK: Yardstick = Yardstick { page_bytes: 4096, peaks_bytes: 0 };

    fn of_a_command_that_fails(output: &str) -> Consultation {
        let run = Measurement {
            ending: Ending::Exited(1),
            user: Duration::from_millis(20),
            system: Duration::from_millis(10),
            elapsed: Duration::from_millis(30),
            minor_faults: 500,
            major_faults: 0,
            waits: 0,
            peak_rss_bytes: 4 << 20,
            final_rss_bytes: Some(4 << 20),
            final_view: FinalView::AtExit,
            mapped_files: vec!["/usr/lib/libjemalloc.so.2".into()],
        };
        let arm = |name: &str, role| ArmResult { name: name.into(), role, runs: vec![run.clone()] };
        let mut arms = vec![arm("libc as is", Role::AsIs), arm("Faultless", Role::Faultless)];
        arms[1].runs[0].mapped_files.push("/f/libfaultless-1.so".into());
        Consultation {
            command: vec!["server".into()],
            is_demo: false,
            input: None,
            glibc: Some((2, 36)),
            taken_out: Vec::new(),
            findings: Vec::new(),
            heap: None,
            tuning: Tuning::default(),
            loaded_data: None,
            verdict: judge(&arms, Scope::All, YARDSTICK).unwrap(),
            arms,
            remarks: Vec::new(),
            doubts: Vec::new(),
            failed_output: Some(output.into()),
            orphans: Vec::new(),
        }
    }

    #[test]
    fn a_heading_without_contents_is_left_out() {
        let text = of_a_command_that_fails("").text(None);
        assert!(text.contains("\n\n───") && !text.contains("Tried"), "{text}");
    }

    #[test]
    fn faults_that_nothing_takes_away_are_looked_into_by_other_commands() {
        let mut consultation = of_a_command_that_fails("");
        assert!(!consultation.text(None).contains("To see"));
        for arm in &mut consultation.arms {
            arm.runs[0].minor_faults = 90_000;
        }
        consultation.command = vec!["my server".into()];
        consultation.verdict = judge(&consultation.arms, Scope::All, YARDSTICK).unwrap();
        let (text, page) = (consultation.text(None), html::html(&consultation));
        for line in ["faultless faults -- 'my server'\n", "faultless churn -- 'my server'\n"] {
            assert!(text.contains(&format!("  {line}")), "{text}");
            assert!(page.contains(&crate::html_page::escape(line.trim_end())), "{page}");
        }
        consultation.command = ["sh", "-c", "one\ntwo"].map(String::from).to_vec();
        assert!(html::html(&consultation).contains("churn -- sh -c &#39;one\ntwo&#39;<"), "a line stays one");
    }

    #[test]
    fn the_lines_to_paste_read_the_file_that_the_runs_read() {
        let mut consultation = of_a_command_that_fails("");
        consultation.input = Some("/data/in put".into());
        (consultation.verdict.faultless_helps, consultation.verdict.faults_stay) = (true, true);
        let text = consultation.text(None);
        for line in ["run -- server", "faults -- server", "churn -- server"] {
            assert!(text.contains(&format!("\n  faultless {line} < '/data/in put'\n")), "{text}");
        }
    }

    #[test]
    fn the_commands_last_words_and_the_environment_do_not_steer_the_terminal() {
        let mut consultation = of_a_command_that_fails("first\n\x1b[2Jlast");
        let (variable, message) = ("MALLOC_\x1b[2J".into(), "has the value '\x1b[31m'".into());
        consultation.findings.push(Finding { variable, message });
        let text = consultation.text(None);
        assert!(text.contains("    first\n    \\u{1b}[2Jlast\n"), "{text}");
        assert!(text.contains("  MALLOC_\\u{1b}[2J has the value '\\u{1b}[31m'\n"), "{text}");
    }

    #[test]
    fn the_page_has_every_arm_and_nothing_of_a_command_leaves_its_element() {
        let mut consultation = of_a_command_that_fails("last <b>words</b>\nand more");
        consultation.command = vec!["a</title><script>".into()];
        let page = html::html(&consultation);
        assert!(!page.contains("<script") && !page.contains("<b>words"), "{page}");
        assert!(page.contains("last &lt;b&gt;words&lt;/b&gt;\n    and more"), "{page}");
        assert!(page.contains("default-src 'none'") && !page.contains("://"), "{page}");
        for arm in ["libc as is", "Faultless"] {
            assert_eq!(page.matches(&format!(">{arm}<")).count(), 5, "four pictures and the table: {page}");
        }
        assert_eq!(page.matches("<circle").count(), 8, "a ring for each run");
        let mut faster = of_a_command_that_fails("");
        faster.arms[1].runs.iter_mut().for_each(|run| run.minor_faults = 90_000);
        faster.verdict = judge(&faster.arms, Scope::All, YARDSTICK).unwrap();
        assert_eq!(html::html(&faster).matches("<g class=\"more\">").count(), 1);
    }

    #[test]
    fn a_narrow_terminal_gets_no_line_that_it_must_break() {
        let consultation = of_a_command_that_fails("");
        let widest = |columns| {
            let text = consultation.text(columns);
            text.lines().map(|line| line.chars().count()).max().unwrap()
        };
        assert!(widest(None) > 80);
        assert!(widest(Some(80)) <= 80, "{}", consultation.text(Some(80)));
        // But for commands to paste.
        let text = consultation.text(Some(60));
        let is_pasted = |line: &&str| !line.contains("MALLOC_");
        let lines = text.lines().filter(is_pasted).map(|line| line.trim_end().chars().count());
        assert!(lines.max().unwrap_or(0) <= 60, "{text}");
        assert_eq!(widest(Some(120)), widest(None));
    }
}
