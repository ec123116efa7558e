//! The tree of calls gets its names, and with them the calls that compilers inlined.

use std::collections::HashMap;

use faultless_records::call_tree::{Call, CallFrame, CallModule, CallTree};

use super::images::Images;
use super::raw_tree::{Code, RawTree};

/// How the outermost part of a chain is shown that could not be followed to its end.
const CUT: &str = "[stack cut off]";

impl Images {
    /// The tree with names, and for each call of the raw tree the call that stands for it.
    pub fn name_calls(&mut self, raw: &RawTree) -> (CallTree, Vec<usize>) {
        let mut naming = Naming { tree: CallTree::default(), frames: HashMap::new(), calls: HashMap::new() };
        naming.tree.modules = self.module_records();
        let mut places: Vec<usize> = Vec::with_capacity(raw.calls().len());
        let mut known: HashMap<Code, Vec<usize>> = HashMap::new();
        for (parent, code) in raw.calls() {
            let frames = known.entry(*code).or_insert_with(|| {
                // Outermost first: the function, then what was inlined into it.
                let mut frames = self.frames(*code);
                frames.reverse();
                frames.into_iter().map(|frame| naming.frame(frame)).collect()
            });
            let mut parent = parent.map(|parent| places[parent]);
            for frame in frames.iter() {
                parent = Some(naming.call(Call { parent, frame: *frame }));
            }
            // `frames` is never empty, so there is a call.
            places.push(parent.unwrap_or_default());
        }
        (naming.tree, places)
    }

    /// The frames of a place in code, innermost first; at least one.
    fn frames(&mut self, code: Code) -> Vec<CallFrame> {
        match code {
            Code::Cut => vec![CallFrame { function: Some(CUT.to_owned()), ..CallFrame::default() }],
            Code::Anonymous { pid, address } => {
                let name = self.anonymous_name(pid, address);
                // A name says it all; addresses of one function would only tear it apart.
                let offset = if name.is_some() { 0 } else { address };
                vec![CallFrame { function: name, offset, ..CallFrame::default() }]
            }
            Code::Module { module, address } => {
                let frames = self.modules.frames(module, address);
                if frames.is_empty() {
                    return vec![CallFrame { module: Some(module), offset: address, ..CallFrame::default() }];
                }
                let named = frames.into_iter().map(|frame| CallFrame {
                    function: frame.function,
                    file: frame.file,
                    line: frame.line,
                    module: Some(module),
                    offset: address,
                    is_inlined: frame.is_inlined,
                });
                named.collect()
            }
        }
    }

    fn module_records(&self) -> Vec<CallModule> {
        let record = |(path, module): (&str, Result<&faultless_symbols::module::Module, &str>)| {
            let build_id = module.ok().map(|module| &module.build_id).filter(|id| !id.is_empty());
            CallModule {
                path: path.to_owned(),
                build_id: build_id.map(|id| id.iter().map(|byte| format!("{byte:02x}")).collect()),
                trouble: module.err().map(str::to_owned),
            }
        };
        self.modules.list().map(record).collect()
    }
}

struct Naming {
    tree: CallTree,
    frames: HashMap<CallFrame, usize>,
    calls: HashMap<Call, usize>,
}

impl Naming {
    fn frame(&mut self, frame: CallFrame) -> usize {
        *self.frames.entry(frame).or_insert_with_key(|frame| {
            self.tree.frames.push(frame.clone());
            self.tree.frames.len() - 1
        })
    }

    fn call(&mut self, call: Call) -> usize {
        *self.calls.entry(call).or_insert_with(|| {
            self.tree.calls.push(call);
            self.tree.calls.len() - 1
        })
    }
}
