//! The table of a command of the user's own: a row for each allocator, since there is nothing else to be told apart.

use comfy_table::{Cell, Table};
use faultless_diagnosis::standing::{Cost, is_among_best, ratio, spread};
use faultless_records::bench::Campaign;
use faultless_records::quantity::count;

use super::table::{amount, close_up, with_interval};
use crate::paste;
use crate::plain::plain;
use crate::table_form::{right, ruled, within};

const COLUMNS: [(&str, Cost); 4] = [
    ("CPU time (s)", Cost::Processor),
    ("elapsed (s)", Cost::Elapsed),
    ("peak RSS (MiB)", Cost::PeakRss),
    ("minor faults", Cost::MinorFaults),
];

/// What stands in the table.
pub(crate) fn legend(campaign: &Campaign) -> String {
    let reference = plain(&campaign.contenders[campaign.reference].name);
    format!(
        "Medians, and under them the median over the rounds of the ratio to {reference}, with its interval; less is better.\n\
         * marks the best of a column and what cannot be told from it, by the sign test's interval."
    )
}

/// The words of the command, and the table of its cell.
pub(crate) fn text(campaign: &Campaign, cell: usize, columns: Option<usize>) -> String {
    let words = plain(&paste::line(&campaign.command));
    let has_calls = !campaign.system_calls.is_empty();
    let mut header = vec![Cell::new("")];
    header.extend(COLUMNS.iter().map(|(heading, _)| right(*heading)));
    header.extend(has_calls.then(|| right("system calls")));
    let mut table = ruled(header);
    for (contender, named) in campaign.contenders.iter().enumerate() {
        let mut row = vec![Cell::new(plain(&named.name))];
        row.extend(COLUMNS.iter().map(|(_, cost)| right(figure(campaign, cell, contender, *cost))));
        row.extend(has_calls.then(|| right(campaign.calls(cell, contender).map_or("-".into(), count))));
        table.add_row(row);
    }
    format!("command: {words}\n{}", within(&close_up(table), &(0..1), columns, Table::to_string))
}

fn figure(campaign: &Campaign, cell: usize, contender: usize, cost: Cost) -> String {
    let Some(own) = spread(campaign, cell, contender, cost) else { return "failed".into() };
    let mark = if is_among_best(campaign, cell, contender, cost) { "*" } else { " " };
    let median = format!("{}{mark}", amount(cost, own.median));
    match ratio(campaign, cell, contender, campaign.reference, cost) {
        Some(ratio) if contender != campaign.reference => {
            format!("{median}\n{} ", with_interval(&ratio, " "))
        }
        _ => median,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::table;
    use faultless_records::bench::{self, Contender, Figures, Machine, SCHEMA, Sample, Suite, SystemCalls};

    fn campaign() -> Campaign {
        let contender = |name: &str| Contender { name: name.into(), library: None, settings: Vec::new() };
        let sample = |contender, round, user_s: Option<f64>| Sample {
            cell: 0,
            contender,
            round,
            figures: user_s.map(|user_s| Figures {
                user_s,
                elapsed_s: user_s,
                peak_rss_bytes: 20 << 20,
                minor_faults: 3000,
                ..Figures::default()
            }),
            failure: user_s.is_none().then(|| "killed by SIGSEGV".into()),
            foreign_cpu: 0.0,
            marks: Default::default(),
        };
        let times = [(0, [2.0, 2.2]), (1, [1.0, 1.32])];
        let of_times = times.iter().flat_map(|(contender, times)| {
            times.iter().enumerate().map(|(round, time)| sample(*contender, round as u32, Some(*time)))
        });
        Campaign {
            schema: SCHEMA,
            machine: Machine { cpus: 2, memory_bytes: 1 << 30, ..Machine::default() },
            contenders: vec![contender("libc"), contender("fast"), contender("broken")],
            command: ["sh", "-c", "sort \x1b big"].map(String::from).to_vec(),
            cells: vec![bench::Cell {
                suite: Suite::Command,
                workload: "sh".into(),
                size: None,
                threads: None,
                variant: None,
            }],
            samples: of_times.chain([sample(2, 0, None), sample(2, 1, None)]).collect(),
            ..Campaign::default()
        }
    }

    #[test]
    fn each_allocator_has_a_row_and_the_command_is_named_as_a_shell_takes_it() {
        let text = table::text(&campaign(), None);
        assert!(text.contains("command: sh -c 'sort \\u{1b} big'\n"), "{text}");
        let line = |start: &str| text.lines().find(|line| line.trim_start().starts_with(start)).unwrap();
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(line("libc")), ["libc", "2.10", "2.10", "20.0*", "3,000*"]);
        assert_eq!(words(line("fast")), ["fast", "1.16*", "1.16*", "20.0*", "3,000*"]);
        assert_eq!(words(line("×0.55"))[..2], ["×0.55", "0.50–0.60"]);
        assert_eq!(words(line("broken")), ["broken", "failed", "failed", "failed", "failed"]);
        assert!(text.contains("broken failed in sh: killed by SIGSEGV"), "{text}");
        assert!(text.contains("Medians, and under them") && !text.contains("geometric mean"), "{text}");
    }

    #[test]
    fn calls_have_a_column_where_they_were_counted() {
        let mut campaign = campaign();
        assert!(!text(&campaign, 0, None).contains("system calls"));
        campaign.system_calls = vec![SystemCalls { cell: 0, contender: 1, calls: 4321 }];
        let text = text(&campaign, 0, None);
        assert!(text.contains("system calls") && text.contains("4,321"), "{text}");
    }

    #[test]
    fn one_round_has_no_interval() {
        let mut campaign = campaign();
        campaign.samples.retain(|sample| sample.round == 0);
        assert!(
            text(&campaign, 0, None).contains("×0.50 \n") || text(&campaign, 0, None).contains("×0.50  ")
        );
        assert!(!text(&campaign, 0, None).contains('–'));
    }
}
