//! The loaded programs and libraries and their dynamic symbols, as the System V ABI and glibc's `<link.h>` lay them out.

use super::page_bytes;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_NULL: usize = 0;
const DT_NEEDED: usize = 1;
const DT_HASH: usize = 4;
const DT_STRTAB: usize = 5;
const DT_SYMTAB: usize = 6;
const DT_GNU_HASH: usize = 0x6fff_fef5;
const PF_EXECUTE: u32 = 1;
const PF_WRITE: u32 = 2;
const PF_READ: u32 = 4;
const SHN_UNDEF: u16 = 0;
const STT_GNU_IFUNC: u8 = 10;
const PROT_READ: c_int = 1;
const PROT_WRITE: c_int = 2;
const PROT_EXECUTE: c_int = 4;

/// `ElfW(Ehdr)`, as far as it is used.
#[repr(C)]
struct Header {
    _identity: [u8; 16],
    _kind: u16,
    _machine: u16,
    _version: u32,
    _entry: usize,
    headers_at: usize,
    _sections_at: usize,
    _flags: u32,
    _bytes: u16,
    _header_bytes: u16,
    header_count: u16,
}

/// `ElfW(Phdr)`.
#[repr(C)]
struct ProgramHeader {
    kind: u32,
    flags: u32,
    _offset: usize,
    address: usize,
    _physical: usize,
    _file_bytes: usize,
    bytes: usize,
    _align: usize,
}

/// `struct dl_phdr_info`, as far as it is used.
#[repr(C)]
struct Info {
    base: usize,
    name: *const c_char,
    headers: *const ProgramHeader,
    header_count: u16,
}

/// `ElfW(Dyn)`.
#[repr(C)]
struct Dynamic {
    tag: usize,
    value: usize,
}

/// `ElfW(Sym)`.
#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    _other: u8,
    section: u16,
    value: AtomicUsize,
    _bytes: usize,
}

unsafe extern "C" {
    fn dl_iterate_phdr(
        visit: unsafe extern "C" fn(*const Info, usize, *mut c_void) -> c_int,
        data: *mut c_void,
    ) -> c_int;
    fn mprotect(start: *mut c_void, bytes: usize, protection: c_int) -> c_int;
}

/// Visits the program and each library, in the order in which they were loaded and are searched, until `visit` returns true.
pub fn objects(mut visit: impl FnMut(Object<'_>) -> bool) {
    let mut visit: &mut dyn FnMut(Object<'_>) -> bool = &mut visit;
    // SAFETY: `visit_one` gets `visit` as what it is, and the call ends before it does.
    unsafe { dl_iterate_phdr(visit_one, (&raw mut visit).cast()) };
}

/// One for all visitors: every process runs it at its start, and those pages are counted.
unsafe extern "C" fn visit_one(info: *const Info, _bytes: usize, visit: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid description, whose object stays loaded during the call, and what `objects` gave it.
    unsafe {
        let Info { base, name, headers, header_count } = *info;
        let headers = core::slice::from_raw_parts(headers, header_count.into());
        let visit = &mut *visit.cast::<&mut dyn FnMut(Object<'_>) -> bool>();
        c_int::from(visit(Object { base, name, headers, table: Table::of(base, headers) }))
    }
}

/// A program or library in memory.
pub struct Object<'a> {
    base: usize,
    /// The path by which it was found; empty for the program.
    name: *const c_char,
    headers: &'a [ProgramHeader],
    table: Option<Table>,
}

/// Its dynamic symbols and the hash tables over their names; at least one of these is not null.
#[derive(Clone, Copy)]
struct Table {
    symbols: *const Symbol,
    strings: *const c_char,
    gnu_hash: *const u32,
    hash: *const u32,
}

/// The segment of an object, loaded at `base`, in which an address lies.
fn segment_of(base: usize, headers: &[ProgramHeader], address: usize) -> Option<&ProgramHeader> {
    let offset = address.wrapping_sub(base);
    headers.iter().find(|header| header.kind == PT_LOAD && offset.wrapping_sub(header.address) < header.bytes)
}

/// The entries of an object's dynamic section, tag and value.
///
/// # Safety
/// The headers are those of an object that is loaded at `base` and stays meanwhile.
unsafe fn dynamic(base: usize, headers: &[ProgramHeader]) -> impl Iterator<Item = (usize, usize)> {
    let header = headers.iter().find(|header| header.kind == PT_DYNAMIC);
    let mut entry: *const Dynamic = header.map_or(core::ptr::null(), |header| {
        core::ptr::with_exposed_provenance(base.wrapping_add(header.address))
    });
    core::iter::from_fn(move || {
        // SAFETY: null where there is no such section; it is loaded and ends with `DT_NULL`, which is not gone past.
        unsafe {
            let Dynamic { tag, value } = *entry.as_ref()?;
            entry = entry.add(1);
            (tag != DT_NULL).then_some((tag, value))
        }
    })
    .fuse()
}

impl Table {
    /// # Safety
    /// The headers are those of an object that is loaded at `base`.
    unsafe fn of(base: usize, headers: &[ProgramHeader]) -> Option<Self> {
        let [mut symbols, mut strings, mut gnu_hash, mut hash] = [0usize; 4];
        // SAFETY: the caller's contract is the same.
        for (tag, value) in unsafe { dynamic(base, headers) } {
            // glibc has put addresses there, but for objects whose section is read-only, as the kernel's is.
            let address =
                if segment_of(base, headers, value).is_some() { value } else { base.wrapping_add(value) };
            match tag {
                DT_SYMTAB => symbols = address,
                DT_STRTAB => strings = address,
                DT_GNU_HASH => gnu_hash = address,
                DT_HASH => hash = address,
                _ => {}
            }
        }
        (symbols != 0 && strings != 0 && gnu_hash | hash != 0).then_some(Self {
            symbols: core::ptr::with_exposed_provenance(symbols),
            strings: core::ptr::with_exposed_provenance(strings),
            gnu_hash: core::ptr::with_exposed_provenance(gnu_hash),
            hash: core::ptr::with_exposed_provenance(hash),
        })
    }

    /// The symbol at `index`, if it defines `name` and is not a function that first chooses another.
    ///
    /// # Safety
    /// The table has so many symbols and stays loaded for `'a`.
    unsafe fn defines<'a>(&self, index: u32, name: &CStr) -> Option<&'a Symbol> {
        // SAFETY: the caller's index; names are C strings in the same object.
        unsafe {
            let symbol = &*self.symbols.add(index as usize);
            let is_it = symbol.section != SHN_UNDEF
                && symbol.info & 0xf != STT_GNU_IFUNC
                && CStr::from_ptr(self.strings.add(symbol.name as usize)) == name;
            is_it.then_some(symbol)
        }
    }

    /// # Safety
    /// As for [`Table::defines`].
    unsafe fn find<'a>(&self, name: &CStr) -> Option<&'a Symbol> {
        if self.gnu_hash.is_null() {
            // Where there is only the old table, as in the kernel's object on older aarch64, there are few symbols. Its second word
            // is their number.
            // SAFETY: as the table says.
            return unsafe { (0..*self.hash.add(1)).find_map(|index| self.defines(index, name)) };
        }
        // SAFETY: indices come from the object's own hash table, whose layout is four words, then a Bloom filter of `filter_words`
        // machine words, the buckets, and one hash for each symbol from number `first` on, the last of a bucket with its lowest
        // bit set.
        unsafe {
            let [buckets, first, filter_words] = [0, 1, 2].map(|index| *self.gnu_hash.add(index));
            let bucket =
                self.gnu_hash.add(4 + filter_words as usize * (size_of::<usize>() / size_of::<u32>()));
            let hashes = bucket.add(buckets as usize);
            let wanted = gnu_hash(name);
            let mut index = if buckets == 0 { 0 } else { *bucket.add((wanted % buckets) as usize) };
            while index >= first {
                let hash = *hashes.add((index - first) as usize);
                if hash | 1 == wanted | 1
                    && let Some(symbol) = self.defines(index, name)
                {
                    return Some(symbol);
                }
                if hash & 1 == 1 {
                    break;
                }
                index += 1;
            }
        }
        None
    }
}

impl<'a> Object<'a> {
    /// What lies in memory as it does in its file, from its first byte on.
    ///
    /// # Safety
    /// There is such an object, which stays for `'a`.
    pub unsafe fn at(start: *const c_void) -> Self {
        // SAFETY: an object begins with its header, which tells where the program headers are; `Header` is that of the machine.
        unsafe {
            let Header { headers_at, header_count, .. } = start.cast::<Header>().read();
            let headers: &'a [ProgramHeader] =
                core::slice::from_raw_parts(start.byte_add(headers_at).cast(), header_count.into());
            let first =
                headers.iter().find(|header| header.kind == PT_LOAD).map_or(0, |header| header.address);
            let base = start.expose_provenance().wrapping_sub(first);
            Object { base, name: c"".as_ptr(), headers, table: Table::of(base, headers) }
        }
    }

    /// Whether an address lies in it.
    pub fn contains(&self, address: usize) -> bool {
        segment_of(self.base, self.headers, address).is_some()
    }

    /// Whether it asks for the object `other` by the name of its file (`DT_NEEDED`).
    pub fn needs(&self, other: &Object<'_>) -> bool {
        let Some(table) = self.table else { return false };
        // SAFETY: both are loaded; names are C strings in them or of the loader.
        unsafe {
            let path = CStr::from_ptr(other.name).to_bytes();
            let file = path.rsplit(|byte| *byte == b'/').next();
            let mut needed = dynamic(self.base, self.headers).filter(|(tag, _)| *tag == DT_NEEDED);
            needed.any(|(_, name)| Some(CStr::from_ptr(table.strings.add(name)).to_bytes()) == file)
        }
    }

    /// Where it defines a name, in whichever version. Not where that is a function which first chooses another.
    pub fn find(&self, name: &CStr) -> Option<usize> {
        // ORDERING: Relaxed, an address, of code that was there before it was written.
        self.symbol(name).map(|symbol| self.base.wrapping_add(symbol.value.load(Ordering::Relaxed)))
    }

    fn symbol(&self, name: &CStr) -> Option<&'a Symbol> {
        // SAFETY: the table lies in an object that stays loaded for `'a`.
        unsafe { self.table?.find(name) }
    }

    /// Makes those who look here for a name from now on find the address beside it; names that it does not define are passed over.
    /// False: the kernel does not let the table be written.
    pub fn lead<'n>(&self, names: impl Iterator<Item = (&'n CStr, usize)> + Clone) -> bool {
        let symbols = names.filter_map(|(name, address)| Some((&self.symbol(name)?.value, address)));
        let places = symbols.clone().map(|(value, _)| value.as_ptr());
        let (Some(first), Some(last)) = (places.clone().min(), places.max()) else { return true };
        let Some(segment) = segment_of(self.base, self.headers, first as usize) else { return false };
        let mut protection = 0;
        for (flag, bit) in [(PF_READ, PROT_READ), (PF_WRITE, PROT_WRITE), (PF_EXECUTE, PROT_EXECUTE)] {
            protection |= if segment.flags & flag != 0 { bit } else { 0 };
        }
        // A value is aligned to its size and does not cross pages.
        let start = first.map_addr(|address| address & !(page_bytes() - 1)).cast::<c_void>();
        let bytes = last as usize + 1 - start as usize;
        // SAFETY: the object's own table, which stays readable, and executable if it was. Its pages are private to the process,
        // so no other sees the change.
        unsafe {
            if mprotect(start, bytes, protection | PROT_WRITE) != 0 {
                return false;
            }
            for (value, address) in symbols {
                // ORDERING: Relaxed, whoever reads it meanwhile gets the old address or the new one, and both are code.
                value.store(address.wrapping_sub(self.base), Ordering::Relaxed);
            }
            // If this fails the pages stay writable, which harms nobody.
            mprotect(start, bytes, protection);
        }
        true
    }
}

/// The hash of `DT_GNU_HASH`: Bernstein's, times 33.
fn gnu_hash(name: &CStr) -> u32 {
    name.to_bytes().iter().fold(5381, |hash: u32, &byte| hash.wrapping_mul(33).wrapping_add(u32::from(byte)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]
mod tests {
    use super::*;

    /// An object with one symbol, at offset 16 of it, in one segment.
    #[repr(C)]
    struct Image {
        header: Header,
        headers: [ProgramHeader; 2],
        dynamic: [Dynamic; 4],
        symbols: [Symbol; 2],
        hash: [u32; 2],
        strings: [u8; 8],
    }

    fn image(linked_at: usize) -> Image {
        let part = |kind, at, bytes| ProgramHeader {
            kind,
            flags: PF_READ,
            _offset: at,
            address: linked_at.wrapping_add(at),
            _physical: 0,
            _file_bytes: bytes,
            bytes,
            _align: 16,
        };
        let entry =
            |tag, at| Dynamic { tag, value: if tag == DT_NULL { 0 } else { linked_at.wrapping_add(at) } };
        let symbol = |name, section, value| Symbol {
            name,
            info: 0,
            _other: 0,
            section,
            value: AtomicUsize::new(value),
            _bytes: 0,
        };
        Image {
            header: Header {
                _identity: [0; 16],
                _kind: 3,
                _machine: 0,
                _version: 1,
                _entry: 0,
                headers_at: core::mem::offset_of!(Image, headers),
                _sections_at: 0,
                _flags: 0,
                _bytes: 64,
                _header_bytes: 56,
                header_count: 2,
            },
            headers: [
                part(PT_LOAD, 0, size_of::<Image>()),
                part(PT_DYNAMIC, core::mem::offset_of!(Image, dynamic), size_of::<[Dynamic; 4]>()),
            ],
            dynamic: [
                entry(DT_SYMTAB, core::mem::offset_of!(Image, symbols)),
                entry(DT_STRTAB, core::mem::offset_of!(Image, strings)),
                entry(DT_HASH, core::mem::offset_of!(Image, hash)),
                entry(DT_NULL, 0),
            ],
            symbols: [symbol(0, SHN_UNDEF, 0), symbol(1, 1, linked_at.wrapping_add(16))],
            hash: [1, 2],
            strings: *b"\0wanted\0",
        }
    }

    /// Linux links its vDSO at 0, gVisor at the end of the address space, as Linux once did.
    #[test]
    fn a_symbol_of_the_vdso_is_found_wherever_that_was_linked() {
        for linked_at in [0, 0xffff_ffff_ff70_0000] {
            let image = image(linked_at);
            let start = (&raw const image).cast::<c_void>();
            // SAFETY: an object is there, and stays.
            let object = unsafe { Object::at(start) };
            assert_eq!(object.find(c"wanted"), Some(start as usize + 16), "{linked_at:x}");
            assert_eq!(object.find(c"another"), None);
        }
    }
}
