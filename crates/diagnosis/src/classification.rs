//! What every mapping of a process is, and how that is known.
//!
//! Each of the modules below recognises one kind of memory by what it finds in it, and makes *claims*: a range, a kind, the
//! evidence. A claim may cover part of a mapping, since the kernel joins neighbours that look alike to it. The strongest claim
//! wins; what nobody claims is what the kernel calls it, and anonymous memory that nothing proves stays unknown.

pub mod claim;
pub mod glibc;
mod glibc_counted;
mod golang;
mod hotspot;
mod hotspot_structs;
pub mod kind;
pub mod loaded;
mod mimalloc;
mod musl;
pub mod parts;
mod patterns;
mod pointers;
mod pymalloc;
mod radix;
pub mod reader;
pub mod reservation;
mod ruby;
pub mod stacks;
pub mod totals;
mod v8;
mod zend;

use faultless_records::contents::{Contents, Extent};
use faultless_records::mappings::Mapping;
use faultless_records::thread::Thread;

use claim::Claims;
use loaded::Loaded;
use parts::Part;
use reader::{Reader, extent_of, mapping_at};

/// What is known of a process.
#[derive(Clone, Copy)]
pub struct Sight<'sight> {
    /// Its mappings, ascending.
    pub mappings: &'sight [Mapping],
    /// Its memory; none for a saved file, or where we may not read it.
    pub contents: Option<&'sight dyn Contents>,
    /// Its threads; none in a saved file.
    pub threads: &'sight [Thread],
}

impl Sight<'_> {
    /// The pieces of anonymous memory that may be written and that nobody claims yet.
    fn unclaimed(&self, claims: &Claims) -> Vec<Extent> {
        let writable = self.mappings.iter().filter(|mapping| mapping.is_anonymous() && mapping.is_writable());
        writable.flat_map(|mapping| claims.gaps(extent_of(mapping))).collect()
    }

    /// Whether private mappings without files cover a range without a hole. They may be many: locked pages, advice and protection
    /// divide what was mapped as one.
    fn is_private(&self, extent: Extent) -> bool {
        let mut at = extent.start;
        while at < extent.end {
            match mapping_at(self.mappings, at) {
                Some(mapping) if mapping.is_anonymous() || mapping.name == b"[heap]" => at = mapping.end,
                _ => return false,
            }
        }
        extent.start < extent.end
    }

    /// The end of the readable anonymous mappings that follow without a hole.
    fn end_of_row(&self, from: u64) -> u64 {
        let mut end = from;
        while let Some(next) =
            mapping_at(self.mappings, end).filter(|next| next.is_anonymous() && next.is_readable())
        {
            end = next.end;
        }
        end
    }
}

/// Every mapping classified, ascending; a mapping of several kinds in several parts.
#[must_use]
pub fn classify(sight: &Sight<'_>) -> Vec<Part> {
    let mut claims = Claims::default();
    if let Some(contents) = sight.contents {
        let reader = Reader::new(contents);
        let loaded = loaded::objects(sight.mappings, &reader);
        claim_by_contents(sight, &reader, &loaded, &mut claims);
    }
    patterns::claim(sight, &mut claims);
    parts::divide(sight, claims)
}

fn claim_by_contents(sight: &Sight<'_>, reader: &Reader<'_>, loaded: &Loaded, claims: &mut Claims) {
    loaded::claim(sight, reader, loaded, claims);
    stacks::claim(sight, reader, loaded, claims);
    glibc::claim(sight, reader, claims);
    reservation::claim(sight, reader, loaded, claims);
    radix::claim(sight, reader, loaded, claims);
    hotspot::claim(sight, reader, loaded, claims);
    golang::claim(sight, reader, loaded, claims);
    mimalloc::claim(sight, reader, loaded, claims);
    musl::claim(sight, reader, claims);
    v8::claim(sight, reader, claims);
    pymalloc::claim(sight, reader, claims);
    zend::claim(sight, reader, claims);
    ruby::claim(sight, reader, claims);
    // These search whole mappings, so only what is left.
    glibc::claim_rows(sight, reader, claims);
    glibc_counted::claim(sight, reader, loaded, claims);
    stacks::claim_first_control_block(sight, reader, claims);
    // Last, since it looks only at what nobody has claimed.
    pointers::claim(sight, reader, loaded, claims);
}
