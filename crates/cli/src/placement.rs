//! Words of the command line that stand where they go to somebody else: our options behind a command or a file, and a command
//! without `--` where that is needed.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::{Arg, CommandFactory, Parser};
use faultless_probe::program;
use faultless_report::paste;

use crate::arguments::{Action, Arguments};
use crate::failure::Failure;

/// What is asked for where the options that stand behind a saved file, the first of these words, stand in front of it; none where
/// the file stands alone.
///
/// # Errors
/// [`Failure::Usage`] where something else stands there.
pub fn in_front(words: &[OsString], subcommand: &str) -> Result<Option<Action>, Failure> {
    let [file, behind @ ..] = words else { return Ok(None) };
    if behind.is_empty() {
        return Ok(None);
    }
    let all: Vec<OsString> = std::env::args_os().collect();
    let ordered = all[..all.len() - words.len()].iter().chain(behind).chain([file]);
    match Arguments::try_parse_from(ordered) {
        Ok(Arguments { action })
            if command_of(&action).is_some_and(|(_, words)| words == [file.as_os_str()]) =>
        {
            Ok(Some(action))
        }
        _ => Err(Failure::of_words_behind(Path::new(file), subcommand)),
    }
}

/// The subcommand, and the words of the command or the file that it was given.
fn command_of(action: &Action) -> Option<(&'static str, &[OsString])> {
    Some(match action {
        Action::Run(arguments) => ("run", &arguments.command),
        Action::Doctor(arguments) => ("doctor", &arguments.command),
        Action::Churn(arguments) => ("churn", &arguments.words),
        Action::Faults(arguments) => ("faults", &arguments.words),
        Action::Heap(arguments) => ("heap", &arguments.words),
        Action::Watch(arguments) => ("watch", &arguments.command),
        Action::Export(arguments) => ("export", &arguments.command),
        Action::Bench(_) | Action::Map(_) | Action::Check(_) | Action::Manual(_) => return None,
    })
}

/// The command line with `--` in front of the first word that is a program, where it means something then.
#[must_use]
pub fn with_dashes(all: &[OsString]) -> Option<String> {
    if all.iter().any(|word| word == "--") {
        return None;
    }
    (2..all.len()).find_map(|at| {
        let (front, command) = all.split_at(at);
        if is_option(&command[0]) || program::find(&command[0]).is_err() {
            return None;
        }
        let dashed: Vec<OsString> =
            front.iter().cloned().chain(["--".into()]).chain(command.to_vec()).collect();
        Arguments::try_parse_from(&dashed).is_ok().then(|| line(dashed.iter().skip(1)))
    })
}

fn is_option(word: &OsStr) -> bool {
    word.as_encoded_bytes().starts_with(b"-")
}

/// A line of ours for a shell.
fn line<'words>(words: impl Iterator<Item = &'words OsString>) -> String {
    let words = words.map(|word| word.to_string_lossy().into_owned());
    paste::line(&["faultless".to_owned()].into_iter().chain(words).collect::<Vec<_>>())
}

/// Options of ours that went to a command because they stand behind it.
pub struct BehindCommand {
    /// All words up to the command.
    front: Vec<OsString>,
    name: OsString,
    behind: Vec<Word>,
}

/// One or more words behind a command.
struct Word {
    words: Vec<OsString>,
    /// Whether they are as an option of ours.
    option: Option<Ours>,
}

struct Ours {
    name: String,
    /// What it would have written.
    file: Option<PathBuf>,
}

impl BehindCommand {
    /// Those of this action; none where `--` says that what is behind it is the command's.
    #[must_use]
    pub fn find(action: &Action, all: &[OsString]) -> Option<Self> {
        let (subcommand, [name, behind @ ..]) = command_of(action)? else { return None };
        if !behind.iter().any(|word| is_option(word)) {
            return None;
        }
        let front = all.get(..all.len().checked_sub(behind.len() + 1)?)?;
        // Of a file that was saved they are taken.
        let is_data = |file: std::fs::Metadata| file.is_file() && file.permissions().mode() & 0o111 == 0;
        if front.last().is_none_or(|word| word == "--") || Path::new(name).metadata().is_ok_and(is_data) {
            return None;
        }
        let definition = Arguments::command();
        let options: Vec<&Arg> = definition.find_subcommand(subcommand)?.get_arguments().collect();
        let is_given = |name: &str| {
            let words = front.iter().filter_map(|word| word.to_str()?.strip_prefix("--"));
            words.map(|word| word.split_once('=').map_or(word, |(name, _)| name)).any(|word| word == name)
        };
        let mut found = Vec::new();
        let mut left = behind;
        while let [word, rest @ ..] = left {
            left = rest;
            if word == "--" {
                found.extend([word].into_iter().chain(rest).map(Word::of_command));
                break;
            }
            match ours(word, rest.first(), &options).filter(|(ours, _)| !is_given(&ours.name)) {
                Some((option, takes_next)) => {
                    let taken = rest.len().min(usize::from(takes_next));
                    let words = [word].into_iter().chain(&rest[..taken]).cloned().collect();
                    found.push(Word { words, option: Some(option) });
                    left = &rest[taken..];
                }
                None => found.push(Word::of_command(word)),
            }
        }
        let has_any = found.iter().any(|word| word.option.is_some());
        has_any.then(|| Self { front: front.to_vec(), name: name.clone(), behind: found })
    }

    /// What to say of them at the end; nothing where the command wrote the files that they name, so that they were meant for it.
    #[must_use]
    pub fn remark(&self) -> Option<String> {
        let is_missed = |word: &&Word| {
            word.option.as_ref().is_some_and(|ours| ours.file.as_ref().is_none_or(|file| !file.exists()))
        };
        let (missed, others): (Vec<&Word>, Vec<&Word>) = self.behind.iter().partition(is_missed);
        let names: Vec<String> =
            missed.iter().filter_map(|word| Some(format!("--{}", word.option.as_ref()?.name))).collect();
        if names.is_empty() {
            return None;
        }
        let words = |of: &[&Word]| of.iter().flat_map(|word| word.words.clone()).collect::<Vec<_>>();
        let dashes = vec![OsString::from("--"), self.name.clone()];
        let ordered = [self.front[1..].to_vec(), words(&missed), dashes, words(&others)].concat();
        let (names, command) = (names.join(", "), self.name.to_string_lossy());
        Some(format!(
            "{names} stood behind {command} and went to it; in front it is ours: {}",
            line(ordered.iter())
        ))
    }
}

impl Word {
    fn of_command(word: &OsString) -> Self {
        Self { words: vec![word.clone()], option: None }
    }
}

/// The option of ours that a word is by its whole name, and whether its value is the `next` word.
fn ours(word: &OsStr, next: Option<&OsString>, options: &[&Arg]) -> Option<(Ours, bool)> {
    let text = word.to_str()?.strip_prefix("--")?;
    let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
    let option = options.iter().find(|option| option.get_long() == Some(name))?;
    let takes_value = option.get_action().takes_values();
    let next = next.filter(|next| takes_value && value.is_none() && !is_option(next));
    let given: Option<PathBuf> = value.map(PathBuf::from).or(next.map(PathBuf::from));
    if takes_value != given.is_some() {
        return None;
    }
    let is_file = option.get_value_names().is_some_and(|names| names == ["FILE"]);
    Some((Ours { name: name.to_owned(), file: given.filter(|_| is_file) }, next.is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remark(line: &str) -> Option<String> {
        let all: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let Arguments { action } = Arguments::try_parse_from(&all).unwrap();
        BehindCommand::find(&action, &all)?.remark()
    }

    #[test]
    fn options_that_went_to_a_command_are_named_with_the_line_to_type() {
        let said = remark("faultless doctor -n 1 ls --html /nowhere/x -l --json /").unwrap();
        assert_eq!(
            said,
            "--html, --json stood behind ls and went to it; in front it is ours: \
             faultless doctor -n 1 --html /nowhere/x --json -- ls -l /"
        );
        let said = remark("faultless run ls --json=/nowhere/x").unwrap();
        assert!(said.ends_with(": faultless run --json=/nowhere/x -- ls"), "{said}");
        assert!(remark("faultless watch ls --interval 1s").is_some());
    }

    #[test]
    fn what_is_the_commands_is_left_alone() {
        for line in [
            "faultless doctor -- ls --json",
            "faultless doctor --json ls --json",
            "faultless doctor ls -- --json",
            "faultless doctor ls --jso --html",
            "faultless doctor ls --html /dev/null",
            "faultless doctor ls --json=x",
            "faultless run ls --all -n 3",
            "faultless doctor",
        ] {
            assert_eq!(remark(line), None, "{line}");
        }
    }

    #[test]
    fn dashes_are_put_in_front_of_a_program() {
        let dashed = |line: &str| with_dashes(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(dashed("faultless map ls -l").as_deref(), Some("faultless map -- ls -l"));
        assert_eq!(dashed("faultless bench -n 3 ls /").as_deref(), Some("faultless bench -n 3 -- ls /"));
        assert_eq!(dashed("faultless bench sun ls"), None);
        assert_eq!(dashed("faultless map -- ls"), None);
        assert_eq!(dashed("faultless map no-such-program -l"), None);
    }
}
