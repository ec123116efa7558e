//! The man page and the shells' completions, made from the definitions of the command line.

use std::io::{self, Write};

use clap::CommandFactory;

use crate::arguments::{Arguments, ManualArguments};
use crate::failure::Failure;
use crate::{examples, exit_status};

/// Prints what was asked for.
///
/// # Errors
/// When standard output cannot be written.
pub fn print(arguments: &ManualArguments) -> Result<(), Failure> {
    let mut text = Vec::new();
    let mut definition = Arguments::command();
    match arguments.completions {
        Some(shell) => clap_complete::generate(shell, &mut definition, "faultless", &mut text),
        None => write_pages(definition, &mut text).map_err(|error| Failure::of_output(&error))?,
    }
    crate::print(text)
}

/// The page of the program: its sections, one for each of its commands, and the exit status once for all.
fn write_pages(mut definition: clap::Command, text: &mut Vec<u8>) -> io::Result<()> {
    definition.build();
    let page = clap_mangen::Man::new(definition.clone());
    page.render_title(text)?;
    page.render_name_section(text)?;
    write_synopsis(&definition, text)?;
    page.render_description_section(text)?;
    page.render_options_section(text)?;
    let is_ours = |command: &&clap::Command| !command.is_hide_set() && command.get_name() != "help";
    for command in definition.get_subcommands().filter(is_ours) {
        let page = clap_mangen::Man::new(command.clone());
        writeln!(text, ".SH \"FAULTLESS {}\"", command.get_name().to_uppercase())?;
        page.render_description_section(text)?;
        write_synopsis(command, text)?;
        page.render_options_section(text)?;
        writeln!(text, ".SH EXAMPLES")?;
        for (line, meaning) in examples::of(command.get_name()) {
            writeln!(text, ".TP\n\\fB{}\\fR\n{meaning}", line.replace('-', "\\-"))?;
        }
    }
    writeln!(text, ".SH \"EXIT STATUS\"")?;
    for (status, meaning) in exit_status::rows_of_all() {
        writeln!(text, ".TP\n\\fB{status}\\fR\n{meaning}")?;
    }
    page.render_version_section(text)
}

/// The usage as `--help` prints it, which says behind which words `--` stands.
fn write_synopsis(command: &clap::Command, text: &mut Vec<u8>) -> io::Result<()> {
    let usage = command.clone().render_usage().to_string();
    writeln!(text, ".SH SYNOPSIS\n{}", usage.trim_start_matches("Usage: ").replace('-', "\\-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_a_section_for_each_command_and_for_the_exit_status() {
        let mut text = Vec::new();
        write_pages(Arguments::command(), &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        for section in
            ["\"FAULTLESS RUN\"", "\"FAULTLESS DOCTOR\"", "\"EXIT STATUS\"", "SYNOPSIS", "EXAMPLES"]
        {
            assert!(text.contains(&format!(".SH {section}\n")), "{section}: {text}");
        }
        assert!(text.contains(".TP\n\\fB127\\fR\nno such command\n"), "{text}");
        for usage in ["map [OPTIONS] [FILE] [\\-\\- <CMD>...]", "run [OPTIONS] <CMD>..."] {
            assert!(text.contains(&format!(".SH SYNOPSIS\nfaultless {usage}\n")), "{usage}: {text}");
        }
        assert!(
            !text.contains("EXTRA") && !text.contains("faultless\\-run(1)"),
            "no pages that do not exist"
        );
    }
}
