//! What helps against what a walk found, in words.

use faultless_diagnosis::glibc_heap::trap::{Hold, LEAST_TRAPPED_BYTES, Trap, is_in_use};
use faultless_diagnosis::glibc_heap::walk::HeapWalk;
use faultless_records::faultless_page::{Class, FaultlessPage};
use faultless_records::quantity::{count, percent, size};

const IN_USE: &str = "Nearly all of malloc's memory is in use: no trim and no setting gives it back, but what huge pages hold untouched \
                      (faultless map tells their sum).";
const NAMES: &str = "faultless churn --malloc -- CMD names who asked for what is not freed.";

/// What helps against memory that is free in several forked processes.
pub(crate) const SHARED: &str = "\
    What is shared is free memory only when each of these processes has given it back: what is free when a process forks is \
    best given back before that.";

/// What helps, by where most of what is trapped lies; where nearly all is in use, what names its owners. What takes a preload is named
/// only where that may reach the program.
#[must_use]
pub fn remedy(walk: &HeapWalk, is_reached: bool) -> Option<String> {
    match Trap::of(walk) {
        Some(trap) => Some(against(trap, is_reached)),
        None if is_in_use(walk) => {
            Some(if is_reached { format!("{IN_USE} {NAMES}") } else { IN_USE.to_owned() })
        }
        None => None,
    }
}

fn against(trap: Trap, is_reached: bool) -> String {
    let text = match trap {
        Trap::MainTop(hold) => {
            format!("is the top of the main heap. {}. malloc_trim(0) gives it back at once", lowered(hold))
        }
        Trap::Returnable => {
            let faultless = "Faultless gives free pages back by itself: faultless run -- CMD runs the program under it, \
                             faultless doctor -- CMD compares the two";
            let trim = "goes back when the program calls malloc_trim(0). glibc never calls it by itself, and a free gives back \
                        only the end of a heap";
            if is_reached { format!("{trim}. {faultless}") } else { trim.into() }
        }
        Trap::ThreadTops(None) => "are tops of threads' arenas".into(),
        Trap::ThreadTops(Some(hold)) => format!("are tops of threads' arenas. {}", lowered(hold)),
        Trap::Pinned => {
            let another = ", or another allocator might: faultless run -- CMD runs the program under Faultless";
            let others = "are parts of pages with blocks in use. No setting of glibc gives them back; blocks of other sizes or \
                          lifetimes would";
            if is_reached { format!("{others}{another}") } else { others.into() }
        }
        Trap::Cached { is_raised: true } => {
            "are blocks in threads' caches, which go back to malloc when the threads end. There are more than these hold by default: \
             glibc.malloc.tcache_count is set, as by GLIBC_TUNABLES in its environment, and without that they keep little"
                .into()
        }
        Trap::Cached { is_raised: false } => {
            "are blocks in threads' caches, which go back to malloc when the threads end. Without caches, by \
             GLIBC_TUNABLES=glibc.malloc.tcache_count=0 in its environment when it starts, each call takes longer"
                .into()
        }
    };
    format!("Most of what is trapped {text}.")
}

/// What keeps a top, where it comes from and how it becomes lower. What the program sets itself, no environment changes.
fn lowered(hold: Hold) -> String {
    let what = match hold {
        Hold::Pad(_) => "A free keeps the top pad of a top",
        _ => "A free gives a top back where it exceeds the trim threshold",
    };
    let why = match hold {
        Hold::Default => "glibc's default. A lower one in its environment when it starts gives more back",
        Hold::Raised(_) => {
            "which glibc raised as the program freed large blocks. MALLOC_TRIM_THRESHOLD_=131072 in its environment when it \
             starts keeps it at 128 KiB, and with it the threshold of mmap: tops and blocks above that go back at each free, \
             at the price of page faults where the memory is wanted again"
        }
        Hold::Set(_) | Hold::Pad(_) => {
            "which the program or its environment has set. A lower one, set there, gives more back at such a free"
        }
    };
    // What mallopt and the environment take as -1.
    let amount = if hold.bytes() == u64::MAX { "-1 (never)".to_owned() } else { size(hold.bytes()) };
    format!("{what}, {amount} here, {why}")
}

/// Why so much of a Faultless process is free and resident, where that is worth a word: blocks in use keep what lies between them. What is
/// resident beyond what the program has is taken for free blocks.
#[must_use]
pub fn of_slabs(page: &FaultlessPage, resident_bytes: u64) -> Option<String> {
    let free_bytes = page.free_in_slabs_bytes().min(resident_bytes.saturating_sub(page.used_bytes()));
    if free_bytes < LEAST_TRAPPED_BYTES || free_bytes < resident_bytes / 4 {
        return None;
    }
    let first = page.classes.iter().max_by_key(|class| class.free_bytes())?;
    Some(format!(
        "About {} of what is resident are free blocks between blocks in use, most of all those of {} bytes ({} free, {} in use). Their \
         pages go back when the blocks around them are freed, too. faultless churn --malloc -- CMD names who asks for such blocks, \
         and what is not freed.",
        size(free_bytes),
        count(first.block_bytes),
        size(first.free_bytes()),
        part_in_use(first),
    ))
}

fn part_in_use(class: &Class) -> String {
    percent(class.used as f64 / class.blocks.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_blocks_between_blocks_in_use_are_worth_a_word_where_they_are_much_of_what_is_resident() {
        let class =
            |block_bytes, blocks, used| Class { block_bytes, blocks, used, slabs: 1, ..Class::default() };
        let page = FaultlessPage {
            classes: vec![class(16, 1_015_808, 112_571), class(224, 500_196, 50_004)],
            large_bytes: 5 << 20,
            ..FaultlessPage::default()
        };
        let text = of_slabs(&page, 145 << 20).unwrap();
        assert!(text.starts_with("About 110 MiB of what is resident are free blocks"), "{text}");
        assert!(text.contains("most of all those of 224 bytes (96.2 MiB free, 10.0 % in use)."), "{text}");
        // Pages of free blocks may have gone back, and what is resident may be others' memory.
        assert!(of_slabs(&page, 40 << 20).unwrap().starts_with("About 22.6 MiB"));
        assert_eq!(of_slabs(&page, 24 << 20), None, "less than 8 MiB");
        assert_eq!(of_slabs(&page, 1000 << 20), None, "less than a quarter");
    }
}
