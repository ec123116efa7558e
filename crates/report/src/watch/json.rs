//! The lines of a recording as JSON, and back. The form is that of [`Line`]; `docs/json.md` describes it.

use faultless_records::recording::{FORMAT, Line};

use crate::saved_form;

/// One line of JSON, with its end of line.
#[must_use]
pub fn json(line: &Line) -> String {
    saved_form::write(line)
}

/// Reads what [`json`] wrote.
///
/// # Errors
/// What is wrong with the line, in one line.
pub fn parse(text: &str) -> Result<Line, String> {
    saved_form::read(text, FORMAT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_records::recording::{
        Begin, Cost, End, Event, FORMAT, Group, GroupLeft, GroupSample, Happening, Note, Process, Sample,
        Source, Use,
    };

    fn every_kind() -> Vec<Line> {
        let begin =
            Begin { format: FORMAT.into(), interval_s: 0.1, subject: "a \"b\"".into(), ..Begin::default() };
        let event = |what| Line::Event(Event { t: 1.5, process: 0, source: Source::Sampling, what });
        let used = Use { user_s: 1.0, system_s: 2.0, minor_faults: 3, major_faults: 4, peak_rss_bytes: 5 };
        vec![
            Line::Begin(begin),
            Line::Process(Process { pid: 7, name: "n\u{1b}".into(), ..Process::default() }),
            Line::Sample(Sample { t: 1.0, rss_bytes: Some(4096), minor_faults: 9, ..Sample::default() }),
            Line::Group(Group { path: "/sys".into(), version: 2, ..Group::default() }),
            Line::GroupSample(GroupSample { current_bytes: 5, oom_kills: Some(1), ..GroupSample::default() }),
            Line::GroupLeft(GroupLeft { t: 1.0, group: 0 }),
            event(Happening::Fork { child: 8 }),
            event(Happening::Exec { name: "ls".into() }),
            event(Happening::Exit { status: None, signal: Some(9) }),
            event(Happening::Left),
            Line::Note(Note { t: 2.0, text: "no".into() }),
            Line::End(End { t: 3.0, cost: Cost { samples: 4, ..Cost::default() }, command: Some(used) }),
        ]
    }

    #[test]
    fn every_kind_of_line_is_read_as_it_was_written() {
        for line in every_kind() {
            let text = json(&line);
            assert_eq!((text.lines().count(), text.contains('\u{1b}')), (1, false));
            assert_eq!(parse(&text).unwrap(), line, "{text}");
        }
        assert!(json(&every_kind()[0]).contains(r#""format":"faultless-watch/1""#));
    }

    #[test]
    fn what_is_cut_off_or_something_else_is_refused_in_one_line() {
        for line in every_kind() {
            let text = json(&line);
            for end in (0..text.len() - 1).filter(|end| text.is_char_boundary(*end)) {
                assert_eq!(parse(&text[..end]).unwrap_err().lines().count(), 1);
            }
        }
        for text in ["", "{}", "[]", "{\"line\":\"other\"}", "\u{0}"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
