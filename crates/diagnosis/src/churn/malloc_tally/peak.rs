//! The most bytes that lived at once, and who held them then.

use std::collections::HashMap;

use faultless_records::malloc_recording::PeakHolder;

use super::{Block, LiveBytes};

/// Who holds what is noted anew when this much more lives than at the last note: some hundred times, however far it grows.
const STEP: f64 = 1.02;

/// The highest of many estimates is one that errs upwards: so many standard errors are taken off.
const ERRORS: f64 = 2.0;

/// The most so far.
#[derive(Debug, Default)]
pub(super) struct Peak {
    estimated_bytes: f64,
    likely_bytes: f64,
    /// Of described blocks, each of which stands for itself alone: no less lived.
    described_bytes: f64,
    most_described_bytes: f64,
    /// What lives by process and call chain.
    held: HashMap<(usize, u32), LiveBytes>,
    described: HashMap<usize, f64>,
    noted: Vec<(u32, LiveBytes)>,
    noted_live: LiveBytes,
}

impl Peak {
    /// A block begins to live, or ends.
    pub(super) fn change(&mut self, process: usize, sign: f64, block: &Block) {
        let bytes = sign * block.size_bytes as f64;
        self.described_bytes += bytes;
        *self.described.entry(process).or_default() += bytes;
        if let Some(stack) = block.stack {
            self.held.entry((process, stack)).or_default().add(sign, LiveBytes::of(block));
        }
    }

    /// So much lives now.
    pub(super) fn see(&mut self, live: LiveBytes) {
        self.most_described_bytes = self.most_described_bytes.max(self.described_bytes);
        self.estimated_bytes = self.estimated_bytes.max(live.less(ERRORS));
        self.likely_bytes = self.likely_bytes.max(live.less(1.0));
        if live.less(ERRORS) > self.noted_live.less(ERRORS) * STEP {
            self.noted_live = live;
            self.noted = self.held.iter().map(|((_, stack), held)| (*stack, *held)).collect();
        }
    }

    /// Nothing of a process lives any more.
    pub(super) fn end(&mut self, process: usize) {
        self.described_bytes -= self.described.remove(&process).unwrap_or(0.0);
        self.held.retain(|(of, _), _| *of != process);
    }

    /// From here on it is not known what becomes of the blocks that live now.
    pub(super) fn lose_sight(&mut self) {
        self.described_bytes = 0.0;
        self.described.clear();
        self.held.clear();
    }

    /// At least about so many bytes lived at once.
    pub(super) fn bytes(&self) -> f64 {
        self.estimated_bytes.max(self.most_described_bytes)
    }

    /// So many may have lived at once: the highest estimate less its standard error.
    pub(super) fn likely_bytes(&self) -> f64 {
        self.likely_bytes.max(self.bytes())
    }

    /// Who held them, of so many. Of whom too few blocks were described nothing is said.
    pub(super) fn holders(self, peak_bytes: f64) -> Vec<PeakHolder> {
        let mut by_stack: HashMap<u32, LiveBytes> = HashMap::new();
        for (stack, held) in self.noted {
            by_stack.entry(stack).or_default().add(1.0, held);
        }
        let factor = if self.noted_live.estimate > 0.0 { peak_bytes / self.noted_live.estimate } else { 0.0 };
        let mut holders: Vec<PeakHolder> = by_stack
            .into_iter()
            .filter(|(_, held)| held.estimate > 0.0 && held.less(ERRORS) >= held.estimate / 2.0)
            .map(|(stack, held)| PeakHolder { stack, bytes: held.estimate * factor })
            .collect();
        holders.sort_by(|one, other| other.bytes.total_cmp(&one.bytes).then(one.stack.cmp(&other.stack)));
        holders
    }
}
