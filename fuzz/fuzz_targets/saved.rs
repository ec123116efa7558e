//! Saved recordings of which any numbers, keys and words were changed: refused, or told of in every form, never a panic.
//!
//! `cargo +nightly fuzz run saved`
#![no_main]

use std::sync::LazyLock;

use arbitrary::Arbitrary;
use faultless_diagnosis::faults::comparison::Comparison;
use faultless_records::churn_recording::ChurnRecording;
use faultless_records::fault_recording::FaultRecording;
use faultless_records::malloc_recording::MallocRecording;
use faultless_report::churn::profile::ChurnProfile;
use faultless_report::{churn, faults, flame, saved_form};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

/// As the tool wrote them of a small program.
static RECORDINGS: LazyLock<[Value; 3]> = LazyLock::new(|| {
    let texts = [
        include_str!("../seeds/faults.json"),
        include_str!("../seeds/churn.json"),
        include_str!("../seeds/malloc.json"),
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
    let mut recording = RECORDINGS[usize::from(which) % 3].clone();
    edits.into_iter().take(8).for_each(|edit| edit.make(&mut recording));
    let text = recording.to_string();
    let columns = Some(usize::from(columns));
    if let Ok(recording) = saved_form::load::<FaultRecording>(&text) {
        let _ = (faults::table::text(&recording, columns), faults::json::json(&recording));
        let _ = (faults::pprof::profile(&recording), flame::html(&recording));
        let _ = (faults::tree::text(&recording), faults::tree::folded(&recording));
        let unchanged = saved_form::load::<FaultRecording>(&RECORDINGS[0].to_string()).unwrap();
        let comparison = Comparison::of(&unchanged, &recording);
        let _ = (faults::json::diff(&comparison), faults::diff::text(&comparison));
    }
    if let Ok(recording) = saved_form::load::<ChurnRecording>(&text) {
        let _ = (churn::table::text(&recording, columns), churn::json::json(&recording));
        let profile = ChurnProfile::of_kernel(&recording);
        let _ = (profile.pprof(), profile.folded());
    }
    if let Ok(recording) = saved_form::load::<MallocRecording>(&text) {
        let _ = (churn::malloc_table::text(&recording, columns), churn::malloc_json::json(&recording));
        let profile = ChurnProfile::of_malloc(&recording);
        let _ = (profile.pprof(), profile.folded());
    }
});
