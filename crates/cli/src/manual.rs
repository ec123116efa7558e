//! The man page and the shells' completions, made from the definitions of the command line.

use std::io::{self, Write};

use clap::CommandFactory;

use crate::arguments::{Arguments, ManualArguments};
use crate::failure::Failure;

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
    io::stdout().write_all(&text).map_err(|error| Failure::of_output(&error))
}

/// The page of the program, then a section for each of its commands.
fn write_pages(mut definition: clap::Command, text: &mut Vec<u8>) -> io::Result<()> {
    definition.build();
    clap_mangen::Man::new(definition.clone()).render(text)?;
    for command in definition.get_subcommands().filter(|command| !command.is_hide_set()) {
        let page = clap_mangen::Man::new(command.clone());
        writeln!(text, ".SH \"FAULTLESS {}\"", command.get_name().to_uppercase())?;
        page.render_description_section(text)?;
        page.render_synopsis_section(text)?;
        page.render_options_section(text)?;
    }
    Ok(())
}
