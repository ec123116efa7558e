//! The tables of a benchmark campaign for people.

use comfy_table::{Cell, Table};
use faultless_diagnosis::seeds;
use faultless_diagnosis::spread::Spread;
use faultless_diagnosis::standing::{BUSY, Cost, Ratio, cells_of, is_among_best, ratio, spread, suite_ratio};
use faultless_records::bench::{Campaign, Suite};
use faultless_records::quantity::{self, count, mebibytes, seconds_of, several, whole};

use super::command_table;
use super::seeds_table;
use crate::plain::{fitted, plain};
use crate::table_form::{right, ruled, within};

/// Below it, too few rounds for an interval of 95 %: said in a line of its own.
const SURE: f64 = 0.95;

/// What stands in the cells.
const LEGEND: &str = "\
The reference's median, and for the others the median over the rounds of the ratio to it; less is better.
* marks the best of a row and what cannot be told from it, by the sign test's interval.
The last row is the geometric mean with its interval.";

/// All tables, with what limits them; prose broken at `columns`.
#[must_use]
pub fn text(campaign: &Campaign, columns: Option<usize>) -> String {
    let fit = |text| fitted(text, columns);
    let mut parts = vec![fit(heading(campaign))];
    for suite in Suite::ALL {
        if cells_of(campaign, suite).next().is_none() {
            continue;
        }
        if suite == Suite::Command {
            parts.extend(cells_of(campaign, suite).map(|cell| command_table::text(campaign, cell, columns)));
            parts.push(fit(command_table::legend(campaign)));
            continue;
        }
        if suite == Suite::Seeds {
            parts.extend(seeds_parts(campaign, columns));
        }
        if suite == Suite::Drawn
            && let Some(seed) = campaign.seed
        {
            parts.push(fit(format!("drawn: programs from number {seed} on (--seed {seed} repeats them)")));
        }
        for cost in costs(suite).into_iter().filter(|cost| is_known(campaign, suite, *cost)) {
            parts.push(format!(
                "{}: {}\n{}",
                suite.name(),
                title(cost),
                within(&table(campaign, suite, cost), &(0..1), columns, Table::to_string)
            ));
        }
        if cells_of(campaign, suite).any(|cell| campaign.system_calls.iter().any(|calls| calls.cell == cell))
        {
            parts.push(format!(
                "{}: system calls, counted in a run of their own\n{}",
                suite.name(),
                within(&calls_table(campaign, suite), &(0..1), columns, Table::to_string)
            ));
        }
    }
    if campaign.cells.iter().any(|cell| !matches!(cell.suite, Suite::Seeds | Suite::Command)) {
        parts.push(fit(LEGEND.to_owned()));
    }
    parts.extend(remarks(campaign).into_iter().map(fit));
    let mut text = parts.join("\n\n");
    text.push('\n');
    text
}

fn costs(suite: Suite) -> Vec<Cost> {
    let mut costs = vec![Cost::time_of(suite), Cost::PeakRss];
    match suite {
        Suite::Threads => costs.extend([Cost::EndRss, Cost::IdleRss]),
        Suite::Programs => costs.push(Cost::MinorFaults),
        Suite::Sun | Suite::Classic | Suite::Drawn => {}
        // Its cases have criteria of their own; their other figures are in the saved file and on the page.
        Suite::Seeds => costs.clear(),
        // It has a table of its own.
        Suite::Command => costs.clear(),
    }
    costs
}

fn seeds_parts(campaign: &Campaign, columns: Option<usize>) -> Vec<String> {
    let fit = |text| fitted(text, columns);
    let rows = seeds::judge(campaign);
    let mut table = headed(campaign, seeds_table::COLUMNS);
    seeds_table::fill(&mut table, campaign, &rows);
    let drawn = campaign.seed.map_or(String::new(), |seed| {
        format!(
            "; sizes and pauses of the random forms are drawn from seed {seed} (--seed {seed} repeats them)"
        )
    });
    let summary = seeds_table::summary(campaign, &rows);
    let head = fit(format!("seeds: what each case must show{drawn}\n{summary}"));
    let mut parts = vec![
        format!("{head}\n{}", within(&close_up(table), &(0..3), columns, Table::to_string)),
        fit(seeds_table::LEGEND.into()),
    ];
    parts.extend(seeds_table::remarks(campaign, &rows).into_iter().map(fit));
    parts
}

/// Whether some run has the figure, or none has any: without idle time there is no RSS after it.
fn is_known(campaign: &Campaign, suite: Suite, cost: Cost) -> bool {
    let mut figures = campaign
        .samples
        .iter()
        .filter(|sample| campaign.cells[sample.cell].suite == suite)
        .filter_map(|sample| sample.figures.as_ref())
        .peekable();
    figures.peek().is_none() || figures.any(|figures| cost.of(figures).is_some())
}

fn title(cost: Cost) -> &'static str {
    match cost {
        Cost::Elapsed => "elapsed time (s)",
        Cost::Processor => "user and system time (s)",
        Cost::PeakRss => "peak RSS (MiB)",
        Cost::EndRss => "RSS at the end, threads still there (MiB)",
        Cost::IdleRss => "RSS after the idle time (MiB)",
        Cost::MinorFaults => "minor page faults",
    }
}

fn heading(campaign: &Campaign) -> String {
    let machine = &campaign.machine;
    // Not every processor has a name, nor every kernel huge pages.
    let known = |name: &str, value: &str| (!value.is_empty()).then(|| format!("{name}{value}"));
    let facts = [
        known("", &machine.processor),
        Some(several(machine.cpus.into(), "CPU")),
        Some(format!("{} MiB", machine.memory_bytes >> 20)),
        known("Linux ", &machine.kernel),
        known("", &machine.libc),
        known("huge pages ", &machine.huge_pages),
    ];
    let facts: Vec<String> = facts.into_iter().flatten().collect();
    plain(&format!("{}; {}", facts.join(", "), several(campaign.rounds().into(), "round")))
}

/// A table with the contenders' names over its columns, and others before them.
fn headed(campaign: &Campaign, before: &[&str]) -> Table {
    let mut header = vec![Cell::new("")];
    header.extend(before.iter().map(|name| Cell::new(*name)));
    header.extend(campaign.contenders.iter().map(|contender| right(plain(&contender.name))));
    ruled(header)
}

fn calls_table(campaign: &Campaign, suite: Suite) -> Table {
    let mut table = headed(campaign, &[]);
    for cell in cells_of(campaign, suite) {
        let calls = |contender| campaign.calls(cell, contender).map_or("-".into(), count);
        table.add_row(row(campaign, &name(campaign, cell), calls));
    }
    close_up(table)
}

/// A heading, and a text for each contender.
fn row(campaign: &Campaign, heading: &str, text: impl Fn(usize) -> String) -> Vec<Cell> {
    let texts = (0..campaign.contenders.len()).map(|contender| right(text(contender)));
    [Cell::new(heading)].into_iter().chain(texts).collect()
}

fn table(campaign: &Campaign, suite: Suite, cost: Cost) -> Table {
    let mut table = headed(campaign, &[]);
    for cell in cells_of(campaign, suite) {
        let standing = |contender| standing(campaign, cell, contender, cost);
        table.add_row(row(campaign, &name(campaign, cell), standing));
    }
    let mean = |contender| {
        let mean = suite_ratio(campaign, suite, contender, campaign.reference, cost);
        mean.map_or("-".into(), |mean| {
            if contender == campaign.reference {
                return "×1".to_owned();
            }
            with_interval(&mean, "\n")
        })
    };
    table.add_row(row(campaign, "geometric mean", mean));
    close_up(table)
}

/// A ratio, and `between` it and that its interval; of one round there is none.
pub(crate) fn with_interval(ratio: &Ratio, between: &str) -> String {
    let bare = |number: f64| quantity::ratio(number).trim_start_matches('×').to_owned();
    let median = quantity::ratio(ratio.median);
    match ratio.confidence > 0.0 {
        true => format!("{median}{between}{}–{}", bare(ratio.low), bare(ratio.high)),
        false => median,
    }
}

/// A figure as it stands in a table.
pub(crate) fn amount(cost: Cost, figure: f64) -> String {
    match cost {
        Cost::Elapsed | Cost::Processor => seconds_of(figure),
        Cost::MinorFaults => whole(figure),
        Cost::PeakRss | Cost::EndRss | Cost::IdleRss => mebibytes(figure as u64),
    }
}

/// Little room between columns: there are as many as allocators.
pub(crate) fn close_up(mut table: Table) -> Table {
    for column in table.column_iter_mut() {
        column.set_padding((0, 1));
    }
    table
}

fn name(campaign: &Campaign, cell: usize) -> String {
    let cell = &campaign.cells[cell];
    let mut name = plain(&cell.workload);
    if let Some(variant) = &cell.variant {
        name.push_str(&format!(" {}", plain(variant)));
    }
    if let Some(size) = cell.size {
        name.push_str(&format!(" {}", size.name()));
    }
    if let Some(threads) = cell.threads {
        name.push_str(&format!(" {threads}"));
    }
    name
}

fn standing(campaign: &Campaign, cell: usize, contender: usize, cost: Cost) -> String {
    let Some(own) = spread(campaign, cell, contender, cost) else {
        let has_run = campaign.runs(cell, contender).next().is_some();
        return if has_run { "-".into() } else { "failed".into() };
    };
    let mark = if is_among_best(campaign, cell, contender, cost) { "*" } else { " " };
    let absolute = || format!("{}{mark}", amount(cost, own.median));
    if contender == campaign.reference {
        return absolute();
    }
    ratio(campaign, cell, contender, campaign.reference, cost)
        .map_or_else(absolute, |ratio| format!("{}{mark}", quantity::ratio(ratio.median)))
}

/// Failures, each once, whether there are too few rounds, and how busy others kept the machine.
#[must_use]
pub fn remarks(campaign: &Campaign) -> Vec<String> {
    let mut remarks: Vec<String> = Vec::new();
    for sample in &campaign.samples {
        let Some(failure) = &sample.failure else { continue };
        let contender = &campaign.contenders[sample.contender].name;
        let remark = plain(&format!("{contender} failed in {}: {failure}", name(campaign, sample.cell)));
        if !remarks.contains(&remark) {
            remarks.push(remark);
        }
    }
    remarks.extend(few_rounds(campaign.rounds() as usize, marks_of_one_round(campaign)));
    remarks.extend(rounds_that_failed(campaign));
    let foreign = Spread::of(campaign.samples.iter().map(|sample| sample.foreign_cpu));
    if let Some(foreign) = foreign.filter(|foreign| foreign.median > BUSY) {
        remarks.push(format!(
            "the machine was busy: in half of the runs others took {:.0} % of its CPU time or more; ratios suffer less than times",
            foreign.median * 100.0
        ));
    }
    remarks
}

fn few_rounds(rounds: usize, marks: &str) -> Option<String> {
    match rounds {
        0 => None,
        1 => Some(format!("one round cannot tell a difference from noise: {marks}")),
        _ => Some(confidence_of(rounds)).filter(|confidence| *confidence < SURE).map(|confidence| {
            format!(
                "{rounds} rounds are few: intervals are the whole range and hold the true ratio with {:.0} % confidence; 6 rounds reach 95 %",
                confidence * 100.0
            )
        }),
    }
}

/// What the marks in the tables say where there is one round.
fn marks_of_one_round(campaign: &Campaign) -> &'static str {
    let has = |seeds: bool| campaign.cells.iter().any(|cell| (cell.suite == Suite::Seeds) == seeds);
    match (has(false), has(true)) {
        (_, false) => "* marks the smallest figure and no more",
        (false, true) => "✓ and ✗ of times are those of this round and no more",
        (true, true) => "* marks the smallest figure, ✓ and ✗ of times are those of this round, and no more",
    }
}

/// The confidence of an interval from so many ratios.
fn confidence_of(rounds: usize) -> f64 {
    Ratio::of(vec![1.0; rounds]).map_or(0.0, |ratio| ratio.confidence)
}

/// Whether runs that failed leave a ratio with less confidence than the rounds would give.
fn rounds_that_failed(campaign: &Campaign) -> Option<String> {
    let contenders = 0..campaign.contenders.len();
    let ratios = (0..campaign.cells.len()).flat_map(|cell| {
        let to_reference =
            move |contender| ratio(campaign, cell, contender, campaign.reference, Cost::PeakRss);
        contenders.clone().filter_map(to_reference)
    });
    let least = ratios.map(|ratio| ratio.confidence).min_by(f64::total_cmp)?;
    (least < SURE.min(confidence_of(campaign.rounds() as usize))).then(|| {
        format!(
            "where runs failed, fewer rounds are left: intervals there hold the true ratio with as little as {:.0} % confidence",
            least * 100.0
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_records::bench::{self, Contender, Figures, Machine, SCHEMA, Sample, Size};

    fn campaign() -> Campaign {
        let figures = |processor_s: f64| Figures {
            user_s: processor_s,
            peak_rss_bytes: 10 << 20,
            ..Figures::default()
        };
        let sample = |contender, round, figures: Option<Figures>, failure: Option<&str>| Sample {
            cell: 0,
            contender,
            round,
            figures,
            failure: failure.map(str::to_owned),
            foreign_cpu: 0.2,
            marks: Default::default(),
        };
        let contender = |name: &str| Contender { name: name.into(), library: None, settings: Vec::new() };
        Campaign {
            schema: SCHEMA,
            tool_version: "0".into(),
            started_unix_s: 0,
            machine: Machine {
                processor: "cpu".into(),
                cpus: 2,
                memory_bytes: 1 << 30,
                kernel: "6.1".into(),
                libc: "glibc 2.36".into(),
                huge_pages: "madvise".into(),
                page_bytes: 4096,
            },
            contenders: vec![contender("libc"), contender("fast"), contender("broken")],
            reference: 0,
            command: Vec::new(),
            seed: None,
            cells: vec![bench::Cell {
                suite: Suite::Classic,
                workload: "sh6".into(),
                size: Some(Size::Small),
                threads: Some(2),
                variant: None,
            }],
            system_calls: Vec::new(),
            samples: vec![
                sample(0, 0, Some(figures(1.0)), None),
                sample(0, 1, Some(figures(1.2)), None),
                sample(1, 0, Some(figures(0.5)), None),
                sample(1, 1, Some(figures(0.6)), None),
                sample(2, 0, None, Some("killed by SIGSEGV")),
                sample(2, 1, None, Some("killed by SIGSEGV")),
            ],
        }
    }

    #[test]
    fn the_best_is_marked_and_ratios_are_to_the_reference() {
        assert_eq!(standing(&campaign(), 0, 0, Cost::Processor), "1.10 ");
        assert_eq!(standing(&campaign(), 0, 1, Cost::Processor), "×0.50*");
        assert_eq!(standing(&campaign(), 0, 1, Cost::PeakRss), "×1.00*");
        assert_eq!(standing(&campaign(), 0, 1, Cost::IdleRss), "-");
    }

    #[test]
    fn a_median_between_two_counts_is_rounded_as_on_the_page() {
        let mut campaign = campaign();
        for (sample, minor_faults) in [(0, 10), (1, 11)] {
            campaign.samples[sample].figures.as_mut().unwrap().minor_faults = minor_faults;
        }
        assert_eq!(standing(&campaign, 0, 0, Cost::MinorFaults), "11 ");
    }

    #[test]
    fn a_small_ratio_is_not_rounded_to_nothing() {
        let mut campaign = campaign();
        for (sample, user_s) in [(2, 0.003), (3, 0.006)] {
            campaign.samples[sample].figures.as_mut().unwrap().user_s = user_s;
        }
        assert_eq!(standing(&campaign, 0, 1, Cost::Processor), "×0.004*");
        assert!(text(&campaign, None).contains("0.003–0.005"), "{}", text(&campaign, None));
    }

    #[test]
    fn failures_are_said_once_and_have_no_mean() {
        let text = text(&campaign(), None);
        assert_eq!(text.matches("broken failed in sh6 small 2: killed by SIGSEGV").count(), 1);
        assert!(text.contains("failed") && text.contains("the machine was busy"));
        assert_eq!(standing(&campaign(), 0, 2, Cost::Processor), "failed");
        let of_broken = super::text(&Campaign { reference: 2, ..campaign() }, None);
        assert!(!of_broken.contains("×1"), "nor has a reference that failed: {of_broken}");
    }

    #[test]
    fn half_of_the_runs_are_half_of_them() {
        let mut campaign = campaign();
        campaign.samples.truncate(2);
        campaign.samples[1].foreign_cpu = 0.02;
        let is_said =
            |campaign: &Campaign, part: &str| remarks(campaign).iter().any(|remark| remark.contains(part));
        assert!(is_said(&campaign, "others took 11 % of its CPU time or more"), "{:?}", remarks(&campaign));
        campaign.samples[0].foreign_cpu = 0.07;
        assert!(!is_said(&campaign, "busy"), "{:?}", remarks(&campaign));
    }

    #[test]
    fn too_few_rounds_for_an_interval_are_said_to_be() {
        assert!(few_rounds(1, "").unwrap().contains("noise"));
        assert!(
            text(&campaign(), None).contains("2 rounds are few") && text(&campaign(), None).contains("50 %")
        );
        assert!(few_rounds(5, "").unwrap().contains("94 %"));
        assert_eq!(few_rounds(6, ""), None);
    }

    #[test]
    fn what_the_marks_of_one_round_say_is_said_of_those_that_there_are() {
        let mut campaign = campaign();
        campaign.samples.retain(|sample| sample.round == 0);
        let said = |campaign: &Campaign| text(campaign, None);
        assert!(said(&campaign).contains("noise: * marks the smallest figure and no more"));
        campaign.cells[0].suite = Suite::Seeds;
        assert!(!said(&campaign).contains("* marks") && said(&campaign).contains("noise: ✓ and ✗"));
    }

    #[test]
    fn rounds_that_failed_are_missed_where_they_were() {
        let mut campaign = campaign();
        let mut of_round = std::mem::take(&mut campaign.samples);
        of_round.retain(|sample| sample.round == 0 && sample.contender < 2);
        for round in 0..6 {
            campaign.samples.extend(of_round.iter().map(|sample| Sample { round, ..sample.clone() }));
        }
        assert!(remarks(&campaign).iter().all(|remark| !remark.contains("confidence")));
        for sample in campaign.samples.iter_mut().filter(|sample| sample.contender == 1 && sample.round > 2) {
            sample.figures = None;
        }
        let remarks = remarks(&campaign).join("\n");
        assert!(remarks.contains("where runs failed") && remarks.contains("as little as 75 %"), "{remarks}");
    }

    #[test]
    fn prose_is_broken_at_the_width_of_the_terminal() {
        let mut campaign = campaign();
        campaign.cells.push(bench::Cell { suite: Suite::Seeds, ..campaign.cells[0].clone() });
        campaign.samples[5].failure = Some("a long reason ".repeat(9));
        let text = text(&campaign, Some(60));
        let longest = text.lines().map(|line| line.chars().count()).max();
        assert!(longest.is_some_and(|longest| longest <= 60), "{text}");
        assert!(super::text(&campaign, None).contains("the ratio to it; less is better.\n* marks the best"));
    }

    #[test]
    fn figures_that_nobody_has_make_no_table() {
        let mut parked = campaign();
        parked.cells[0].suite = Suite::Threads;
        assert!(!text(&parked, None).contains("idle time"));
        parked.samples[0].figures = Some(Figures { idle_rss_bytes: Some(1 << 20), ..Figures::default() });
        assert!(text(&parked, None).contains("RSS after the idle time"));
        parked.samples.iter_mut().for_each(|sample| sample.figures = None);
        assert!(text(&parked, None).contains("RSS after the idle time"));
    }

    #[test]
    fn what_is_not_known_of_the_machine_is_left_out() {
        assert_eq!(
            heading(&campaign()),
            "cpu, 2 CPUs, 1024 MiB, Linux 6.1, glibc 2.36, huge pages madvise; 2 rounds"
        );
        let machine = Machine { cpus: 1, memory_bytes: 1 << 30, kernel: "6.1".into(), ..Machine::default() };
        assert_eq!(heading(&Campaign { machine, ..campaign() }), "1 CPU, 1024 MiB, Linux 6.1; 2 rounds");
    }

    #[test]
    fn names_and_failures_do_not_steer_the_terminal() {
        let mut odd = campaign();
        odd.contenders[2].name = "a\x1b[2J".into();
        odd.cells[0].workload = "b\x1b".into();
        odd.machine.kernel = "c\x1b".into();
        odd.samples[4].failure = Some("d\x1b\ne".into());
        assert!(!text(&odd, None).contains('\x1b') && text(&odd, None).contains("d\\u{1b}\\ne"));
    }
}
