//! Numbers with their thousands apart.

/// A row of decimal digits with a comma before every third from the end.
#[must_use]
pub fn apart(digits: &str) -> String {
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_stand_between_threes() {
        assert_eq!(["", "1", "999", "1000", "4036512"].map(apart), ["", "1", "999", "1,000", "4,036,512"]);
    }
}
