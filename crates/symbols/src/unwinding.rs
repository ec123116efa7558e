//! From registers and a piece of stack to the call chain, by the unwinding tables of the modules; where there are none (code
//! that a just-in-time compiler wrote), by frame pointers.

use std::ops::Range;
use std::sync::Arc;

use faultless_records::perf_record::{Registers, Sample};
use framehop::{
    CacheNative, Error, ExplicitModuleSectionInfo, FrameAddress, MayAllocateDuringUnwind, UnwindRegsNative,
    Unwinder, UnwinderNative,
};

use crate::module::Module;

/// Frames are followed up to here; deeper recursion is cut.
const DEEPEST: usize = 512;

/// Nothing is ever mapped below: what is taken for a return address there is an argument count, at a program's first
/// instruction.
const LOWEST_CODE: u64 = 4096;

/// What one process's stacks are unwound with; cheap to clone for its children.
#[derive(Clone, Default)]
pub struct StackUnwinder {
    inner: UnwinderNative<Arc<[u8]>, MayAllocateDuringUnwind>,
}

/// What unwinding learns once for all processes.
#[derive(Default)]
pub struct UnwindCache {
    inner: CacheNative<MayAllocateDuringUnwind>,
}

/// A call chain.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Chain {
    /// Addresses inside the calls, innermost first.
    pub addresses: Vec<u64>,
    /// The outermost callers are missing: the piece of stack ended, or a frame could not be read.
    pub is_cut: bool,
}

impl StackUnwinder {
    /// Takes notice of code mapped at `range`, whose first byte is the module's byte with the linker's address `linked`.
    pub fn add(&mut self, range: Range<u64>, linked: u64, module: &Module) {
        let sections = &module.unwinding;
        let (eh_frame_svma, eh_frame) = sections.eh_frame.clone().unzip();
        let (eh_frame_hdr_svma, eh_frame_hdr) = sections.eh_frame_hdr.clone().unzip();
        let info = ExplicitModuleSectionInfo {
            base_svma: 0,
            text_svma: sections.text.clone(),
            got_svma: sections.got.clone(),
            eh_frame_svma,
            eh_frame,
            eh_frame_hdr_svma,
            eh_frame_hdr,
            debug_frame: sections.debug_frame.clone(),
            ..Default::default()
        };
        let base = range.start.wrapping_sub(linked);
        self.inner.add_module(framehop::Module::new(String::new(), range, base, info));
    }

    /// Forgets the code that was mapped from this address on.
    pub fn remove(&mut self, start: u64) {
        self.inner.remove_module(start);
    }

    /// The call chain of a sample: by the tables as far as its piece of stack reaches, then, where the kernel's own walk by frame
    /// pointers passed the same frame, by that.
    #[must_use]
    pub fn chain(&self, sample: &Sample, cache: &mut UnwindCache) -> Chain {
        let Some(registers) = sample.registers else {
            return Chain { addresses: sample.callchain.clone(), is_cut: true };
        };
        let mut chain = self.unwind(registers, &sample.stack, cache);
        if chain.is_cut {
            continue_by(&mut chain, &sample.callchain);
        }
        chain
    }

    fn unwind(&self, registers: Registers, stack: &[u8], cache: &mut UnwindCache) -> Chain {
        let mut read = |address: u64| {
            let start = usize::try_from(address.checked_sub(registers.sp).ok_or(())?).map_err(drop)?;
            let word = stack.get(start..start.checked_add(8).ok_or(())?).ok_or(())?;
            Ok(u64::from_le_bytes(word.try_into().map_err(drop)?))
        };
        #[cfg(target_arch = "x86_64")]
        let start = UnwindRegsNative::new(registers.ip, registers.sp, registers.fp);
        #[cfg(target_arch = "aarch64")]
        let start = UnwindRegsNative::new(registers.lr, registers.sp, registers.fp);
        let mut frames = self.inner.iter_frames(registers.ip, start, &mut cache.inner, &mut read);
        let mut chain = Chain::default();
        while chain.addresses.len() < DEEPEST {
            match frames.next() {
                Ok(Some(frame))
                    if frame.address_for_lookup() < LOWEST_CODE && !chain.addresses.is_empty() =>
                {
                    return chain;
                }
                Ok(Some(frame)) => chain.addresses.push(frame.address_for_lookup()),
                Ok(None) => return chain,
                // The outermost frame of code without tables often has nothing above it.
                Err(Error::ReturnAddressIsNull) => return chain,
                Err(_) => break,
            }
        }
        chain.is_cut = true;
        chain
    }
}

/// Appends what the other chain, of return addresses, has above the outermost frame that both have.
fn continue_by(chain: &mut Chain, returns: &[u64]) {
    let calls: Vec<u64> = returns
        .iter()
        .skip(1)
        .filter_map(|address| FrameAddress::from_return_address(*address))
        .map(FrameAddress::address_for_lookup)
        .collect();
    let Some(outermost) = chain.addresses.last() else { return };
    if chain.addresses.len() > 1
        && let Some(place) = calls.iter().position(|address| address == outermost)
        && place + 1 < calls.len()
    {
        chain.addresses.extend(&calls[place + 1..]);
        chain.is_cut = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(addresses: &[u64]) -> Chain {
        Chain { addresses: addresses.to_vec(), is_cut: true }
    }

    #[test]
    fn a_cut_chain_goes_on_where_the_kernels_walk_passed_the_same_frame() {
        let mut cut = chain(&[0x10, 0x1f, 0x2f]);
        continue_by(&mut cut, &[0x10, 0x30, 0x40, 0x50]);
        assert_eq!(cut.addresses, [0x10, 0x1f, 0x2f, 0x3f, 0x4f]);
        assert!(!cut.is_cut);

        let mut elsewhere = chain(&[0x10, 0x1f, 0x2f]);
        continue_by(&mut elsewhere, &[0x10, 0x77, 0x99]);
        assert_eq!(elsewhere, chain(&[0x10, 0x1f, 0x2f]));
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn code_without_tables_is_unwound_by_frame_pointers() {
        // Two frames of saved frame pointer and return address; the outermost has neither.
        let words: [u64; 6] = [0x1020, 0x50_0000, 0, 0, 0, 0];
        let stack: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let registers = Registers { ip: 0x40_0000, sp: 0x1000, fp: 0x1000, lr: 0 };
        let sample = Sample { registers: Some(registers), stack, ..Sample::default() };
        let chain = StackUnwinder::default().chain(&sample, &mut UnwindCache::default());
        assert_eq!(chain.addresses, [0x40_0000, 0x4f_ffff]);
    }

    #[test]
    fn without_registers_the_kernels_walk_is_all_there_is() {
        let sample = Sample { callchain: vec![1, 2], ..Sample::default() };
        let chain = StackUnwinder::default().chain(&sample, &mut UnwindCache::default());
        assert_eq!(chain.addresses, [1, 2]);
        assert!(chain.is_cut);
    }
}
