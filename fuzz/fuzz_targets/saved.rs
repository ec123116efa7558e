//! Saved files of which any numbers, keys and words were changed: refused, or told of in every form, never a panic.
//!
//! `cargo +nightly fuzz run saved`
#![no_main]

use std::sync::LazyLock;

use arbitrary::Arbitrary;
use faultless_diagnosis::churn::comparison::Comparison as ChurnComparison;
use faultless_diagnosis::classification::totals::changes;
use faultless_diagnosis::faults::comparison::Comparison;
use faultless_diagnosis::history::History;
use faultless_records::churn_recording::ChurnRecording;
use faultless_records::fault_recording::FaultRecording;
use faultless_records::malloc_recording::MallocRecording;
use faultless_report::churn::profile::ChurnProfile;
use faultless_report::plot::Choice;
use faultless_report::{bench, churn, faults, flame, map, plot, png, saved_form, watch};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

/// As the tool wrote them of small programs; that of `watch`, which has a line for each, as a list.
static SAVED: LazyLock<[Value; 6]> = LazyLock::new(|| {
    let texts = [
        include_str!("../seeds/faults.json"),
        include_str!("../seeds/churn.json"),
        include_str!("../seeds/malloc.json"),
        include_str!("../seeds/bench.json"),
        include_str!("../seeds/map.json"),
        include_str!("../seeds/watch.json"),
    ];
    texts.map(|text| serde_json::from_str(text).unwrap())
});

#[derive(Arbitrary, Debug)]
struct Edit {
    place: u16,
    change: Change,
}

#[derive(Arbitrary, Debug)]
enum Change {
    Small(u8),
    Whole(u64),
    Negative(i64),
    Real(f64),
    Text(String),
    Key(u8),
    Nothing,
    Gone,
}

impl Edit {
    fn make(self, recording: &mut Value) {
        let mut places = Vec::new();
        gather(recording, String::new(), &mut places);
        let Some(found) = recording.pointer_mut(&places[usize::from(self.place) % places.len()]) else {
            return;
        };
        match self.change {
            Change::Small(number) => *found = number.into(),
            Change::Whole(number) => *found = number.into(),
            Change::Negative(number) => *found = number.into(),
            Change::Real(number) => *found = number.into(),
            Change::Text(text) => *found = text.into(),
            Change::Nothing => *found = Value::Null,
            Change::Key(key) => rename(found, key),
            Change::Gone => shorten(found),
        }
    }
}

/// Pointers to a value and to all in it.
fn gather(value: &Value, pointer: String, places: &mut Vec<String>) {
    match value {
        Value::Array(list) => {
            (0..)
                .zip(list)
                .for_each(|(key, value): (usize, _)| gather(value, format!("{pointer}/{key}"), places));
        }
        Value::Object(map) => {
            map.iter().for_each(|(key, value)| gather(value, format!("{pointer}/{key}"), places));
        }
        _ => {}
    }
    places.push(pointer);
}

/// The first entry gets another key: many are powers of two.
fn rename(value: &mut Value, key: u8) {
    if let Value::Object(map) = value
        && let Some(old) = map.keys().next().cloned()
        && let Some(value) = map.remove(&old)
    {
        map.insert(key.to_string(), value);
    }
}

fn shorten(value: &mut Value) {
    match value {
        Value::Array(list) => drop(list.pop()),
        Value::Object(map) => map.clear(),
        _ => {}
    }
}

fuzz_target!(|input: (u8, u8, Vec<Edit>)| {
    let (which, columns, edits) = input;
    let which = usize::from(which) % SAVED.len();
    let mut saved = SAVED[which].clone();
    edits.into_iter().take(8).for_each(|edit| edit.make(&mut saved));
    let (text, columns) = (saved.to_string(), Some(usize::from(columns)));
    match which {
        0 => show_faults(&text, columns),
        1 => show_churn(&text, columns),
        2 => show_malloc(&text, columns),
        3 => show_campaign(&text, columns),
        4 => show_map(&text, columns),
        _ => show_watch(saved.as_array().map_or(&[][..], Vec::as_slice), columns),
    }
});

fn show_faults(text: &str, columns: Option<usize>) {
    let Ok(recording) = saved_form::load::<FaultRecording>(text) else { return };
    let _ = (faults::table::text(&recording, columns), faults::json::json(&recording));
    let _ = (faults::pprof::profile(&recording), flame::html(&recording));
    let _ = (faults::tree::text(&recording), faults::tree::folded(&recording));
    let unchanged = saved_form::load::<FaultRecording>(&SAVED[0].to_string()).unwrap();
    let comparison = Comparison::of(&unchanged, &recording);
    let _ = (faults::json::diff(&comparison), faults::diff::text(&comparison, columns));
}

fn show_churn(text: &str, columns: Option<usize>) {
    let Ok(recording) = saved_form::load::<ChurnRecording>(text) else { return };
    let _ = (churn::table::text(&recording, columns), churn::json::json(&recording));
    let profile = ChurnProfile::of_kernel(&recording);
    let _ = (profile.pprof(), profile.folded());
    let unchanged = saved_form::load::<ChurnRecording>(&SAVED[1].to_string()).unwrap();
    let comparison = ChurnComparison::of_kernel(&unchanged, &recording);
    let _ = (churn::diff::json(&comparison), churn::diff::text(&comparison, columns));
}

fn show_malloc(text: &str, columns: Option<usize>) {
    let Ok(recording) = saved_form::load::<MallocRecording>(text) else { return };
    let _ = (churn::malloc_table::text(&recording, columns), churn::malloc_json::json(&recording));
    let profile = ChurnProfile::of_malloc(&recording);
    let _ = (profile.pprof(), profile.folded());
    let unchanged = saved_form::load::<MallocRecording>(&SAVED[2].to_string()).unwrap();
    let comparison = ChurnComparison::of_malloc(&unchanged, &recording);
    let _ = (churn::diff::json(&comparison), churn::diff::text(&comparison, columns));
}

fn show_campaign(text: &str, columns: Option<usize>) {
    let Ok(campaign) = bench::json::parse(text) else { return };
    let _ = (bench::table::text(&campaign, columns), bench::json::json(&campaign));
    let _ = bench::html::html(&campaign);
    let _ = bench::html::plot::scene(&campaign).map(|scene| (scene.svg(), png::png(&scene)));
}

fn show_map(text: &str, columns: Option<usize>) {
    let Ok(after) = map::saved_totals::load(text) else { return };
    let before = map::saved_totals::load(&SAVED[4].to_string()).unwrap();
    let changes = changes(&before.totals, &after.totals);
    let _ = map::json::changes(&before, &after, &changes);
    let _ = map::change::text(&before, &after, &changes, columns);
}

/// Up to the line that cannot follow those before it.
fn show_watch(lines: &[Value], columns: Option<usize>) {
    let (mut history, mut shown) = (History::new(), watch::lines::Columns::default());
    for line in lines {
        let Ok(line) = watch::json::parse(&line.to_string()) else { break };
        if history.add(line.clone()).is_err() {
            break;
        }
        let _ = (shown.text(&line, &history), watch::lines::csv(&line, &history));
    }
    let _ = watch::summary::text(&history, columns);
    let scene = plot::scene(&history, &Choice::whole(&history));
    let _ = (scene.svg(), png::png(&scene));
}
