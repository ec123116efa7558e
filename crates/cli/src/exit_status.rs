//! What each command ends with, for its help and for the man page.

/// What each command ends with when nothing went wrong.
const GOOD: &[(&str, &str)] = &[
    ("doctor", "0 when a verdict was reached, whatever it says"),
    ("run", "the command's own; when a signal killed the command, the same signal"),
    ("bench", "0 when every allocator finished every run"),
    ("map", "0 when a map was shown, however the command ended"),
    ("heap", "0 when it could look, however the command ended"),
    ("watch", "that of the command it started, as run; otherwise 0"),
    ("faults", "0 when faults were recorded, however the command ended"),
    ("churn", "0 when a report was made, however the command ended"),
    ("export", "that of the command it started, as run; otherwise 0"),
    ("check", "0, whatever is permitted"),
    ("manual", "0"),
];

/// Why a command is not run.
const CANNOT_RUN: &str = "the command cannot be executed";
const CANNOT_RUN_OR_LOAD: &str = "the command cannot be executed, or a preload does not reach it";

/// For the help of one command.
pub fn of(command: &str) -> String {
    let wrong = match command {
        "doctor" => "something went wrong, or the command ended differently under different arms",
        "bench" => "something went wrong, or an allocator failed in a run",
        _ => "something went wrong",
    };
    let mut rows = vec![("1", wrong), ("2", "usage")];
    match command {
        "check" | "manual" => {}
        "run" | "doctor" | "bench" | "churn" => rows.extend(not_run(CANNOT_RUN_OR_LOAD)),
        _ => rows.extend(not_run(CANNOT_RUN)),
    }
    let good = GOOD.iter().find(|(name, _)| *name == command).map_or("", |(_, good)| good);
    table(&format!("Exit status: {good}; else"), &rows)
}

/// For the help of the program.
pub fn of_all() -> String {
    table("Exit status:", &rows_of_all())
}

/// A command or a status, and what that means, for all commands.
pub fn rows_of_all() -> Vec<(&'static str, &'static str)> {
    let wrong = "something went wrong; of doctor also: runs ended differently; of bench: a run failed";
    let mut rows = GOOD.to_vec();
    rows.extend([("1", wrong), ("2", "usage")]);
    rows.extend(not_run(CANNOT_RUN_OR_LOAD));
    rows
}

fn not_run(refused: &'static str) -> [(&'static str, &'static str); 2] {
    [("126", refused), ("127", "no such command")]
}

fn table(heading: &str, rows: &[(&str, &str)]) -> String {
    let width = rows.iter().map(|(status, _)| status.len()).max().unwrap_or(0);
    let lines = rows.iter().map(|(status, meaning)| format!("\n  {status:width$}  {meaning}"));
    heading.to_owned() + &lines.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_help_of_each_command_ends_with_its_own_statuses_alone() {
        let definition = crate::arguments::Arguments::command();
        let commands: Vec<&clap::Command> = definition.get_subcommands().collect();
        assert_eq!(commands.len(), GOOD.len());
        for command in commands {
            let name = command.get_name();
            assert!(GOOD.iter().any(|(known, _)| *known == name), "{name}");
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.ends_with(&of(name)), "{help}");
            assert_eq!(help.contains("127"), !["check", "manual"].contains(&name), "{help}");
        }
    }

    #[test]
    fn what_is_good_stands_first_and_then_a_line_for_each_status() {
        let expected = "Exit status: 0, whatever is permitted; else\n  1  something went wrong\n  2  usage";
        assert_eq!(of("check"), expected);
        assert!(of_all().starts_with("Exit status:\n  doctor  0 when a verdict"), "{}", of_all());
    }
}
