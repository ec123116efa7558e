//! A flame graph of page faults as one page of HTML: searched, zoomed and turned over by its own script, without network.

use faultless_records::fault_recording::FaultRecording;
use faultless_records::quantity::{seconds_of, whole};
use serde_json::{Value, json};

use crate::faults::table::subject;
use crate::faults::tree::Nodes;
use crate::html_page::{escape, page};

const STYLE: &str = include_str!("flame/page.css");
const SCRIPT: &str = include_str!("flame/page.js");

/// Calls below this part of all faults are not drawn: they would be thinner than a tenth of a pixel on a wide screen.
const LEAST_SHARE: f64 = 0.000_02;

/// The page.
#[must_use]
pub fn html(recording: &FaultRecording) -> String {
    let nodes = Nodes::of(recording);
    let seconds = recording.observed_s();
    let title = escape(&format!("Page faults of {}", subject(recording)));
    let summary = format!(
        "{} page faults in {} s. A box is a function; its width is the part of the faults in it and in what it calls.",
        whole(nodes.list[0].all),
        seconds_of(seconds)
    );
    let body = format!(
        "<main>\n<h1>{title}</h1>\n<p>{summary}</p>\n\
         <form id=\"tools\" autocomplete=\"off\">\n\
         <label>Search <input id=\"search\" type=\"search\" placeholder=\"part of a name, or /expression/\"></label>\n\
         <output id=\"found\"></output>\n\
         <button type=\"button\" id=\"reset\">Whole graph</button>\n\
         <label><input id=\"turned\" type=\"checkbox\"> turned over: from the functions that fault to their callers</label>\n</form>\n\
         <div id=\"graph\" role=\"tree\" aria-label=\"{title}\"></div>\n<p id=\"detail\" role=\"status\">&nbsp;</p>\n\
         <noscript><p>This page draws itself by a script.</p></noscript>\n\
         <footer>Written by faultless {version}. Click a box to zoom, Escape to go back, / to search.</footer>\n</main>\n\
         <script type=\"application/json\" id=\"data\">{data}</script>\n<script>\n{SCRIPT}</script>\n",
        summary = escape(&summary),
        version = escape(&recording.tool_version),
        data = in_script(&data(&nodes)),
    );
    page(&title, STYLE, "; script-src 'unsafe-inline'", &body)
}

/// Names once, and for each node its parent, name, own faults; parents stand before their children.
fn data(nodes: &Nodes) -> Value {
    let all = nodes.list[0].all;
    let mut names: Vec<String> = Vec::new();
    let mut known = std::collections::HashMap::new();
    let mut number = |name: &str, module: &str| -> usize {
        *known.entry((name.to_owned(), module.to_owned())).or_insert_with(|| {
            names.push(match module {
                "" => name.to_owned(),
                module if name.starts_with(module) => name.to_owned(),
                module => format!("{name}\u{1f}{module}"),
            });
            names.len() - 1
        })
    };
    let mut rows: Vec<Value> = Vec::new();
    let mut open: Vec<(usize, i64)> = vec![(0, -1)];
    while let Some((place, parent)) = open.pop() {
        let node = &nodes.list[place];
        // What is too thin to be drawn counts as its caller's own.
        let calls = nodes.calls(place).into_iter().filter(|call| nodes.list[*call].all >= all * LEAST_SHARE);
        let calls: Vec<usize> = calls.collect();
        let inside: f64 = calls.iter().map(|call| nodes.list[*call].all).sum();
        let own = (node.all - inside).max(0.0);
        let row = rows.len() as i64;
        rows.push(json!([parent, number(&node.name, &node.module), (own * 10.0).round() / 10.0]));
        open.extend(calls.into_iter().rev().map(|call| (call, row)));
    }
    json!({ "names": names, "nodes": rows })
}

/// JSON that cannot end the element it stands in.
fn in_script(value: &Value) -> String {
    value.to_string().replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::tree::tests::recording;

    fn nodes_of(page: &str) -> Value {
        let start = page.find("id=\"data\">").unwrap() + 10;
        let end = start + page[start..].find("</script>").unwrap();
        serde_json::from_str(&page[start..end]).unwrap()
    }

    #[test]
    fn the_page_holds_every_call_with_its_own_faults() {
        let page = html(&recording());
        let data = nodes_of(&page);
        let own: f64 = data["nodes"].as_array().unwrap().iter().map(|node| node[2].as_f64().unwrap()).sum();
        assert_eq!(own, 100.0);
        for (place, node) in data["nodes"].as_array().unwrap().iter().enumerate() {
            assert!(node[0].as_i64().unwrap() < place as i64, "parents come first");
            assert!((node[1].as_u64().unwrap() as usize) < data["names"].as_array().unwrap().len());
        }
        assert!(data["names"].as_array().unwrap().contains(&json!("dgemm\u{1f}chem")));
    }

    #[test]
    fn names_of_functions_cannot_leave_their_place() {
        let mut recording = recording();
        recording.tree.frames[1].function = Some("</script><script>alert(1)//\u{2028}".into());
        recording.subject.command = vec!["<img src=x onerror=alert(1)>".into()];
        let page = html(&recording);
        assert_eq!(page.matches("<script").count(), 2);
        assert!(!page.contains("<img"));
        assert!(nodes_of(&page)["names"].to_string().contains("</script>"));
    }

    #[test]
    fn the_page_asks_nothing_of_a_network() {
        let page = html(&recording());
        for word in ["http:", "https:", "src=", "url(", "@import"] {
            assert!(!page.contains(word), "{word}");
        }
    }
}
