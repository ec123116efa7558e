//! Whether a search finds all pages there.

use crate::os;
use std::fs;
use std::os::unix::fs::FileExt;

/// So many faults may come where no page is missing: the kernel moves pages meanwhile to make room for a huge one, and drops those of the
/// program's own code.
const MOVED_PAGES: u64 = 8;

/// Faults of a thread of its own that reads every page, some of which were missing. It reads them through a file opened before, into its
/// stack: nothing but the search may fault in between.
pub fn faults_of_a_search(bytes: &[u8]) -> u64 {
    let is_whole = os::missing_pages(bytes.as_ptr() as usize, bytes.len()) == 0;
    let minor_faults = |text: &[u8]| -> u64 {
        let text = String::from_utf8_lossy(text);
        text.rsplit(')').next().unwrap().split_whitespace().nth(7).unwrap().parse().unwrap()
    };
    let search = || {
        let stat = fs::File::open("/proc/thread-self/stat").unwrap();
        let mut texts = [[0u8; 512]; 2];
        let mut sum = 0;
        // The first round, over one page, faults in what the thread itself needs.
        for part in [&bytes[..1], bytes] {
            stat.read_at(&mut texts[0], 0).unwrap();
            sum += part.iter().step_by(4096).map(|&byte| u64::from(byte)).sum::<u64>();
            stat.read_at(&mut texts[1], 0).unwrap();
        }
        std::hint::black_box(sum);
        minor_faults(&texts[1]) - minor_faults(&texts[0])
    };
    let faults = std::thread::scope(|scope| scope.spawn(search).join().unwrap());
    if is_whole { faults.saturating_sub(MOVED_PAGES) } else { faults }
}
