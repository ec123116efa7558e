//! Faultless in a process, read from outside: found by its reservation, and what its statistics page says.

use std::time::Duration;

use faultless_diagnosis::classification::loaded;
use faultless_diagnosis::classification::reader::Reader;
use faultless_diagnosis::classification::reservation;
use faultless_probe::clock::namespace_ns;
use faultless_probe::contents::LiveContents;
use faultless_probe::process::{Memory, Process};
use faultless_records::allocator::Allocator;
use faultless_records::contents::Extent;
use faultless_records::faultless_page::{FaultlessPage, MAGIC, PAGE_BYTES};
use faultless_records::mappings::Mapping;
use faultless_records::status;
use faultless_report::heap::FaultlessHeap;

/// How often a page is read that is being written.
const MOST_READS: u32 = 50;

/// The program or library that has Faultless inside.
pub struct Host {
    file: String,
    /// Pages of its data that may be the statistics.
    pages: Vec<u64>,
    /// Where all its blocks lie.
    blocks: Extent,
}

impl Host {
    /// Finds it by the addresses of the reservation, whatever the file is called.
    pub fn find(process: &Process, mappings: &[Mapping]) -> Option<Self> {
        let contents = LiveContents::open(process, mappings).ok()?;
        let reader = Reader::new(&contents);
        let loaded = loaded::objects(mappings, &reader);
        let found = reservation::find(mappings, &reader, &loaded).next()?;
        let (object, blocks) = (found.object, found.blocks());
        let mut pages = Vec::new();
        for data in &object.data {
            reader.each_page(*data, |address, words| {
                if words[0] == MAGIC {
                    pages.push(address);
                }
                false
            });
        }
        Some(Self { file: object.file_name(), pages, blocks })
    }

    /// Where all its blocks lie, also those to come.
    pub fn blocks(&self) -> Extent {
        self.blocks
    }

    /// What the process publishes, without what of it is resident, or a remark on why there is nothing.
    pub fn look(&self, process: &Process, memory: &Memory) -> Result<FaultlessHeap, String> {
        let Some(page) = self.pages.iter().find_map(|address| read(memory, *address)) else {
            return Err(self.unpublished());
        };
        // In a PID namespace the process knows itself by another number: the last one here.
        let status = process.text("status").unwrap_or_default();
        if status::innermost_number(&status).is_some_and(|own| u64::try_from(own) != Ok(page.pid)) {
            return Err("It was forked, and the page that it has is its parent's.".into());
        }
        let age = Duration::from_nanos(namespace_ns().saturating_sub(page.written_ns));
        Ok(FaultlessHeap { page, age, resident_bytes: 0 })
    }

    fn unpublished(&self) -> String {
        let remark = "It publishes nothing of its inside: start it with FAULTLESS=publish:on to see its classes, spans and caches \
                      (not those of processes that it forks)";
        if Allocator::of_file(&self.file) == Some(Allocator::Faultless) {
            return format!("{remark}.");
        }
        format!(
            "{remark}, if it is libfaultless that is in {}; a Rust program with faultless-heap calls faultless_heap::publish().",
            self.file
        )
    }
}

fn read(memory: &Memory, address: u64) -> Option<FaultlessPage> {
    for _ in 0..MOST_READS {
        let (mut bytes, mut again) = ([0; PAGE_BYTES], [0; PAGE_BYTES]);
        memory.read_at(address, &mut bytes).ok()?;
        // What was read while it was written differs, or has an odd sequence number.
        memory.read_at(address, &mut again).ok()?;
        if bytes == again
            && let Some(page) = FaultlessPage::parse(&bytes, address)
        {
            return Some(page);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    None
}
