//! The allocator's own variable, `FAULTLESS=key:value,key:value`: what in it will be ignored.

/// Keys and the values they take; an empty list takes the start of a path.
const OPTIONS: &[(&str, &[&str])] = &[
    ("stats", &["exit", "off"]),
    ("report", &[]),
    ("publish", &["on", "off"]),
    ("trace", &[]),
    ("purge", &["auto", "now", "never"]),
    ("purger", &["auto", "off"]),
    ("huge_pages", &["never", "auto", "always"]),
];

/// Most bytes of the start of a path.
fn most_bytes(key: &str) -> usize {
    if key == "trace" { 256 } else { 1024 }
}

/// The price of idle memory, which takes a number: microseconds of CPU time for a MiB in a second.
const PRICE: &str = "thrift";
const PRICES: std::ops::RangeInclusive<u64> = 1..=1_000_000;

/// One message for each option that the library does not understand.
#[must_use]
pub fn check(value: &str) -> Vec<String> {
    value.split(',').filter(|option| !option.is_empty()).filter_map(check_option).collect()
}

fn check_option(option: &str) -> Option<String> {
    let (key, value) = option.split_once(':').unwrap_or((option, ""));
    if key == PRICE {
        let is_price = value.parse().is_ok_and(|price| PRICES.contains(&price));
        return (!is_price).then(|| format!("{option} is ignored: {PRICE} takes a number from 1 to 1000000"));
    }
    match OPTIONS.iter().find(|(known, _)| *known == key) {
        Some((_, [])) => {
            let most = most_bytes(key);
            let is_prefix = (1..=most).contains(&value.len());
            (!is_prefix)
                .then(|| format!("{option} is ignored: {key} takes the start of a path, 1 to {most} bytes"))
        }
        Some((_, values)) if values.contains(&value) => None,
        Some((_, values)) => Some(format!("{option} is ignored: {key} takes {}", values.join(", "))),
        None => {
            let known: Vec<&str> = OPTIONS.iter().map(|(known, _)| *known).chain([PRICE]).collect();
            Some(format!("{option} is ignored: the options are {}", known.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_library_understands_is_not_mentioned() {
        assert!(check("").is_empty());
        assert!(
            check("stats:exit,purge:now,report:/tmp/x:y,trace:/tmp/x,huge_pages:auto,purger:off,thrift:100,")
                .is_empty()
        );
    }

    #[test]
    fn each_mistake_is_named_with_what_would_be_right() {
        let messages = check("stats:yes,decay:1,report:,nonsense");
        assert_eq!(messages.len(), 4);
        assert_eq!(messages[0], "stats:yes is ignored: stats takes exit, off");
        assert!(
            messages[1]
                .contains("the options are stats, report, publish, trace, purge, purger, huge_pages, thrift")
        );
        assert!(messages[2].contains("start of a path"));
        let long = |key, bytes| check(&format!("{key}:{}", "x".repeat(bytes))).len();
        assert_eq!([long("report", 1024), long("report", 1025)], [0, 1]);
        assert_eq!([long("trace", 256), long("trace", 257)], [0, 1]);
    }
}
