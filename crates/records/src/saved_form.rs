//! What a saved file says of its own form, whatever else is in it.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The part of a saved file that tells of which form it is; forms of later versions have it, too.
#[derive(Debug, Default, Deserialize)]
pub struct Head {
    /// Name and version of the form, `faultless-map/1`; empty in campaigns of `bench`.
    #[serde(default)]
    pub format: String,
    /// Version of the form of a campaign; 0 in others.
    #[serde(default)]
    pub schema: u32,
}

/// What an instrument saw, which is saved and read again.
pub trait Recording: Serialize + DeserializeOwned {
    /// Name and version of its form.
    const FORMAT: &'static str;

    /// Whether it is of that form, and what it holds fits together.
    ///
    /// # Errors
    /// What is wrong.
    fn check(&self) -> Result<(), String>;
}

/// Whether a form is the one that is known.
///
/// # Errors
/// Otherwise, in words.
pub fn check(found: &str, known: &str) -> Result<(), String> {
    if found == known {
        return Ok(());
    }
    match (version(found), version(known)) {
        (Some((name, version)), Some((known_name, known_version)))
            if name == known_name && version > known_version =>
        {
            Err(newer(found))
        }
        _ => Err(format!("its format is {found}, and this version reads {known}")),
    }
}

/// A form's name and version.
fn version(form: &str) -> Option<(&str, u64)> {
    let (name, version) = form.rsplit_once('/')?;
    Some((name, version.parse().ok()?))
}

/// The refusal of a file of a form that came later.
#[must_use]
pub fn newer(form: &str) -> String {
    format!(
        "it was written by a newer version of faultless ({form}): read it with that one, or update this one"
    )
}

/// Most calls, or page faults, that a recording may tell of: any sum of their numbers then has room in 64 bits.
const MOST: u64 = 1 << 53;

/// Whether these numbers of calls can be added up.
///
/// # Errors
/// Otherwise, in words.
pub fn check_calls(numbers: impl Iterator<Item = u64>) -> Result<(), String> {
    check_sum(numbers, "calls")
}

/// Whether these numbers can be added up; `what` says of what they are.
///
/// # Errors
/// Otherwise, in words.
pub fn check_sum(mut numbers: impl Iterator<Item = u64>, what: &str) -> Result<(), String> {
    let sum = numbers.try_fold(0_u64, u64::checked_add);
    match sum.is_some_and(|sum| sum <= MOST) {
        true => Ok(()),
        false => Err(format!("it is damaged: it tells of more {what} than there can be")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_form_is_told_from_another_one() {
        let reason = |found: &str| check(found, "faultless-map/1").err().unwrap_or_default();
        assert_eq!(reason("faultless-map/1"), "");
        assert!(reason("faultless-map/2").contains("newer version of faultless (faultless-map/2)"));
        for other in ["faultless-map/0", "faultless-map-diff/2", "faultless-map", "faultless-map/x", ""] {
            assert!(reason(other).contains("this version reads faultless-map/1"), "{other}");
        }
    }

    #[test]
    fn calls_are_refused_where_their_sum_has_no_room() {
        assert!(check_calls([1, 2, MOST - 3].into_iter()).is_ok());
        assert!(check_calls([1, MOST].into_iter()).is_err());
        assert!(check_calls([u64::MAX, u64::MAX].into_iter()).is_err());
    }
}
