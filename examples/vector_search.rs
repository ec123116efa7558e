//! A small vector search: a gallery of vectors in a `Vec` and in regions, searched by many threads. Prints what loading and
//! searching took, in seconds and page faults.
//!
//! `cargo run --release -p faultless-heap --example vector_search -- [MEBIBYTES] [THREADS] [QUERIES]` (512, 8, 16)

#![forbid(unsafe_code)]

use faultless_heap::region::{RegionError, RegionOptions, Sharing};
use std::time::Instant;

const DIMENSIONS: usize = 128;

#[derive(Clone, Copy)]
struct Shape {
    vectors: usize,
    threads: usize,
    queries: usize,
}

/// Minor faults of the process so far; 0 where `/proc` cannot be read.
fn minor_faults() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default();
    fields.split_whitespace().nth(7).and_then(|field| field.parse().ok()).unwrap_or(0)
}

/// Seconds and faults since it was made.
struct Meter(Instant, u64);

impl Meter {
    fn start() -> Self {
        Self(Instant::now(), minor_faults())
    }

    fn read(&self) -> (f64, u64) {
        (self.0.elapsed().as_secs_f64(), minor_faults() - self.1)
    }
}

/// Numbers from -1 to 1, the same on every machine.
struct Numbers(u64);

impl Numbers {
    fn new(seed: u64) -> Self {
        Self(seed * 2 + 1)
    }

    fn next(&mut self) -> f32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) as i32 as f32 / 2_147_483_648.0
    }
}

fn load(gallery: &mut [f32]) {
    let mut numbers = Numbers::new(1);
    gallery.fill_with(|| numbers.next());
}

/// The number of the vector nearest to a query.
fn nearest(gallery: &[f32], query: usize) -> usize {
    let mut numbers = Numbers::new(query as u64 + 100);
    let wanted: [f32; DIMENSIONS] = std::array::from_fn(|_| numbers.next());
    let product = |vector: &[f32]| {
        let mut lanes = [0.0; 8];
        for (left, right) in wanted.as_chunks::<8>().0.iter().zip(vector.as_chunks::<8>().0) {
            for (lane, (left, right)) in lanes.iter_mut().zip(left.iter().zip(right)) {
                *lane += left * right;
            }
        }
        lanes.iter().sum::<f32>()
    };
    let products = gallery.chunks_exact(DIMENSIONS).map(product).enumerate();
    products.max_by(|one, other| one.1.total_cmp(&other.1)).map_or(0, |(vector, _)| vector)
}

/// Searches with all threads at once; the answers in one number.
fn search(gallery: &[f32], shape: Shape) -> usize {
    let mut answers = vec![0; shape.queries];
    let part = shape.queries.div_ceil(shape.threads);
    std::thread::scope(|scope| {
        for (thread, answers) in answers.chunks_mut(part).enumerate() {
            scope.spawn(move || {
                for (place, answer) in answers.iter_mut().enumerate() {
                    *answer = nearest(gallery, thread * part + place);
                }
            });
        }
    });
    answers.into_iter().fold(0, |sum: usize, vector| sum.wrapping_mul(31).wrapping_add(vector))
}

fn report(name: &str, loading: &Meter, gallery: &[f32], shape: Shape) {
    let (load_s, load_faults) = loading.read();
    let searching = Meter::start();
    let checksum = search(gallery, shape);
    let (search_s, search_faults) = searching.read();
    println!(
        "{name:<16} load {load_s:7.3} s {load_faults:>8} faults   search {search_s:7.3} s {search_faults:>6} faults   \
         checksum {checksum:016x}"
    );
}

fn main() -> Result<(), RegionError> {
    let mut arguments = std::env::args().skip(1).map(|word| word.parse::<usize>().unwrap_or(0).max(1));
    let bytes = arguments.next().unwrap_or(512) << 20;
    let (threads, queries) = (arguments.next().unwrap_or(8), arguments.next().unwrap_or(16));
    let shape = Shape { vectors: bytes / size_of::<f32>() / DIMENSIONS, threads, queries };

    let loading = Meter::start();
    let mut gallery = vec![0.0; shape.vectors * DIMENSIONS];
    load(&mut gallery);
    report("Vec", &loading, &gallery, shape);
    drop(gallery);

    for (name, sharing) in [("region, private", Sharing::Private), ("region, shared", Sharing::Shared)] {
        let loading = Meter::start();
        let mut region = RegionOptions::new(bytes).sharing(sharing).name(c"gallery").map()?;
        load(region.view_mut());
        let gallery = region.freeze()?;
        report(name, &loading, gallery.view(), shape);
        if let Some(pages) = gallery.pages() {
            let (resident, huge) = (pages.resident_bytes >> 20, pages.huge_bytes >> 20);
            println!("  of {resident} MiB resident {huge} MiB are in huge pages");
        }
    }
    Ok(())
}
