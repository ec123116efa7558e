//! The call tree of a recording of page faults, from the outermost call inwards, and what other formats share of it.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use faultless_diagnosis::faults::profile::NOT_LOOKED_AT;
use faultless_diagnosis::faults::weight::Weights;
use faultless_records::fault_recording::FaultRecording;
use faultless_records::quantity::{percent, whole};

use super::table::shortened;
use crate::folded;
use crate::plain::plain;

/// Calls below this part of all faults are left out.
const LEAST_SHARE: f64 = 0.005;
/// Deeper calls are left out.
const DEEPEST: usize = 64;

/// How the kernel's part of a chain is shown.
pub(crate) const KERNEL: &str = "[in the kernel]";

/// A call and all it calls.
#[derive(Debug, Default)]
pub(crate) struct Node {
    /// Name of the function, and its module.
    pub name: String,
    pub module: String,
    /// Faults in it and in what it calls.
    pub all: f64,
    /// Faults in itself.
    pub own: f64,
    /// By name and module.
    pub calls: BTreeMap<(String, String), usize>,
}

/// All calls; the first is the root, which stands for everything.
#[derive(Debug)]
pub(crate) struct Nodes {
    pub list: Vec<Node>,
}

/// A chain of calls, outermost first, as pairs of name and module, with its faults.
pub(crate) struct Chain {
    pub frames: Vec<(String, String)>,
    pub faults: f64,
}

/// The chains of a recording, each once.
pub(crate) fn chains(recording: &FaultRecording) -> Vec<Chain> {
    let weights = Weights::of(recording);
    let mut gathered: HashMap<(Option<usize>, usize, bool), f64> = HashMap::new();
    for faults in &recording.faults {
        let key = (faults.call, faults.process, faults.in_kernel);
        *gathered.entry(key).or_default() += weights.faults(faults);
    }
    let mut keys: Vec<_> = gathered.into_iter().filter(|(_, faults)| *faults > 0.0).collect();
    keys.sort_by_key(|(key, _)| *key);
    let tree = &recording.tree;
    let rest = weights.not_looked_at();
    let rest =
        Chain { frames: vec![(NOT_LOOKED_AT.to_owned(), String::new())], faults: rest.minor + rest.major };
    keys.into_iter()
        .map(|((call, process, in_kernel), faults)| {
            let mut frames: Vec<(String, String)> = tree
                .outwards(call)
                .map(|frame| (tree.name(frame), tree.module_name(frame).unwrap_or_default().to_owned()))
                .collect();
            let process = recording.processes.get(process).map_or("", |process| process.name.as_str());
            frames.push((if process.is_empty() { "?" } else { process }.to_owned(), String::new()));
            frames.reverse();
            if in_kernel {
                frames.push((KERNEL.to_owned(), String::new()));
            }
            Chain { frames, faults }
        })
        .chain((rest.faults > 0.0).then_some(rest))
        .collect()
}

impl Nodes {
    /// The tree of a recording's chains.
    pub fn of(recording: &FaultRecording) -> Self {
        let mut list = vec![Node { name: "all".into(), ..Node::default() }];
        for chain in chains(recording) {
            let mut place = 0;
            list[0].all += chain.faults;
            for frame in chain.frames {
                place = match list[place].calls.get(&frame) {
                    Some(known) => *known,
                    None => {
                        let new = list.len();
                        list[place].calls.insert(frame.clone(), new);
                        list.push(Node { name: frame.0, module: frame.1, ..Node::default() });
                        new
                    }
                };
                list[place].all += chain.faults;
            }
            list[place].own += chain.faults;
        }
        Self { list }
    }

    /// The calls of a node, most faults first.
    pub fn calls(&self, place: usize) -> Vec<usize> {
        let mut calls: Vec<usize> = self.list[place].calls.values().copied().collect();
        calls.sort_by(|a, b| self.list[*b].all.total_cmp(&self.list[*a].all));
        calls
    }
}

/// The tree as text. A call whose caller calls nothing else that matters stands under it without further indent.
#[must_use]
pub fn text(recording: &FaultRecording) -> String {
    let nodes = Nodes::of(recording);
    let all = nodes.list[0].all;
    let mut text = String::new();
    let _ = writeln!(text, "{:>14}  {:>7}  call", "faults", "share");
    if all > 0.0 {
        // Depth and indent; the stack of what is still to be written has the next one last.
        let mut open: Vec<(usize, usize, String)> = vec![];
        let push = |open: &mut Vec<(usize, usize, String)>, place: usize, depth: usize, indent: &str| {
            let calls: Vec<usize> = nodes
                .calls(place)
                .into_iter()
                .filter(|call| nodes.list[*call].all >= all * LEAST_SHARE)
                .collect();
            let is_only = calls.len() == 1;
            for (order, call) in calls.iter().enumerate().rev() {
                let is_last = order + 1 == calls.len();
                let mark = match (is_only, is_last) {
                    (true, _) => "",
                    (false, true) => "└ ",
                    (false, false) => "├ ",
                };
                open.push((*call, depth + 1, format!("{indent}{mark}")));
            }
        };
        push(&mut open, 0, 0, "");
        while let Some((place, depth, indent)) = open.pop() {
            let node = &nodes.list[place];
            let module = if node.module.is_empty() || node.name.starts_with(&node.module) {
                String::new()
            } else {
                format!("  ({})", plain(&node.module))
            };
            let name = shortened(&plain(&node.name));
            let _ = writeln!(
                text,
                "{:>14}  {:>7}  {indent}{name}{module}",
                whole(node.all),
                percent(node.all / all)
            );
            if depth < DEEPEST {
                let below = indent.replace("├ ", "│ ").replace("└ ", "  ");
                push(&mut open, place, depth, &below);
            }
        }
    }
    text
}

/// A line for each chain with its number of faults, the outermost call first.
#[must_use]
pub fn folded(recording: &FaultRecording) -> String {
    let chains = chains(recording);
    folded::lines(
        chains.iter().map(|chain| (chain.frames.iter().map(|(name, _)| name.as_str()), chain.faults)),
    )
}

#[cfg(test)]
pub(crate) mod tests;
