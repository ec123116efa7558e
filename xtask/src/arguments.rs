//! The command line: words and `--options`, nothing more.

use std::str::FromStr;

use crate::failure::{Failure, Result, usage};

/// The arguments that no one has taken yet.
pub struct Arguments(Vec<String>);

impl Arguments {
    /// Takes the arguments after the program's name.
    pub fn new(arguments: impl Iterator<Item = String>) -> Self {
        Self(arguments.collect())
    }

    /// Takes the first word that is not an option.
    pub fn word(&mut self) -> Option<String> {
        let index = self.0.iter().position(|argument| !argument.starts_with("--"))?;
        Some(self.0.remove(index))
    }

    /// Takes a switch such as `--list`.
    pub fn switch(&mut self, name: &str) -> bool {
        let index = self.0.iter().position(|argument| argument == name);
        index.map(|index| self.0.remove(index)).is_some()
    }

    /// Takes an option with a value, `--seed 7` or `--seed=7`.
    pub fn option(&mut self, name: &str) -> Result<Option<String>> {
        let prefix = format!("{name}=");
        if let Some(index) = self.0.iter().position(|argument| argument.starts_with(&prefix)) {
            return Ok(Some(self.0.remove(index).split_off(prefix.len())));
        }
        let Some(index) = self.0.iter().position(|argument| argument == name) else { return Ok(None) };
        self.0.remove(index);
        if index < self.0.len() {
            Ok(Some(self.0.remove(index)))
        } else {
            usage(format!("{name} needs a value"))
        }
    }

    /// Takes an option with a number.
    pub fn number<N: FromStr>(&mut self, name: &str, default: N) -> Result<N> {
        match self.option(name)? {
            None => Ok(default),
            Some(text) => {
                text.parse().map_err(|_| Failure::Usage(format!("{name} needs a number, not {text:?}")))
            }
        }
    }

    /// Takes the words that are left; an option that no one took is an error.
    pub fn words(mut self) -> Result<Vec<String>> {
        let words = std::iter::from_fn(|| self.word()).collect();
        match self.0.first() {
            None => Ok(words),
            Some(option) => usage(format!("unknown option {option} (cargo xtask help)")),
        }
    }

    /// Checks that nothing is left.
    pub fn end(self) -> Result<()> {
        match self.words()?.first() {
            None => Ok(()),
            Some(word) => usage(format!("unexpected argument {word:?} (cargo xtask help)")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(line: &str) -> Arguments {
        Arguments::new(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn options_take_their_value_in_both_spellings() {
        let mut arguments = arguments("--seed 7 --threads=3 redis");
        assert_eq!(arguments.number("--seed", 1).unwrap(), 7);
        assert_eq!(arguments.number("--threads", 1).unwrap(), 3);
        assert_eq!(arguments.words().unwrap(), ["redis"]);
    }

    #[test]
    fn what_no_one_took_and_what_is_no_number_is_wrong_use() {
        let is_usage = |failed: Option<Failure>| matches!(failed, Some(Failure::Usage(_)));
        assert!(is_usage(arguments("redis --lits").words().err()));
        assert!(is_usage(arguments("redis").end().err()));
        assert!(is_usage(arguments("--seed x").number("--seed", 1).err()));
    }
}
