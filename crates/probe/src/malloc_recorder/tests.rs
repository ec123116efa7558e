use super::*;

#[derive(Default)]
struct Seen {
    events: Vec<MallocEvent>,
    /// Programs that ended by their own word, and how many events came before.
    ended: Vec<(usize, usize)>,
}

impl Observer for Seen {
    fn began(&mut self, _process: usize, _head: &RecorderHead, _number: Option<i32>, _maps: &[u8]) {}
    fn ended(&mut self, process: usize) {
        self.ended.push((process, self.events.len()));
    }
    fn look(&mut self) {}
    fn all_taken(&mut self) {}
    fn take(&mut self, _process: usize, event: MallocEvent) {
        self.events.push(event);
    }
    fn counted(&mut self, _process: usize, _head: &RecorderHead, _counts: Vec<RingCounts>) {}
    fn unrecorded(&mut self, _programs: usize) {}
    fn tick(&mut self) {}
}

fn directory(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("faultless-rings-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir(&path).unwrap();
    path
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

const RING_BYTES: u64 = 4096;
const RING: u64 = 4096;
const RECORDS: u64 = RING + 8192;

fn file_with_one_ring(path: &Path, head: u64, tail: u64) -> File {
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).unwrap();
    file.set_len(RECORDS + RING_BYTES).unwrap();
    let magic = u64::from_ne_bytes(*b"FALTREC1");
    file.write_all_at(&words(&[magic, 2 | RING_BYTES << 32, 7, 0, 1, 0, 0, 0, 0]), 0).unwrap();
    file.write_all_at(&words(&[head]), RING).unwrap();
    file.write_all_at(&words(&[tail]), RING + 64).unwrap();
    file
}

#[test]
fn a_record_over_the_end_of_a_ring_is_read_once_and_makes_room() {
    let place = directory("wrap");
    let tail = RING_BYTES * 3 - 16;
    let file = file_with_one_ring(&place.join("7-0.rings"), tail + 40, tail);
    file.write_all_at(&words(&[2 | 40 << 32, 5]), RECORDS + RING_BYTES - 16).unwrap();
    file.write_all_at(&words(&[9, 3, 0]), RECORDS).unwrap();
    let (mut files, mut seen) = (Files::new(&place), Seen::default());
    assert_eq!(files.read(&mut seen), 1);
    assert_eq!(seen.events, [MallocEvent::Freed { time_ns: 5, id: 9, tid: 3, by_realloc: false }]);
    assert_eq!(files.read(&mut seen), 0);
    assert_eq!(files.files[&0].word(RING + 64).unwrap(), tail + 40);
    fs::remove_dir_all(&place).unwrap();
}

#[test]
fn frees_without_room_in_a_ring_are_read_once_over_the_end_of_their_places_and_make_room() {
    let place = directory("spill");
    let file = file_with_one_ring(&place.join("7-0.rings"), 0, 0);
    let start = RING + 1024 * (8192 + RING_BYTES);
    let before = SPILL_PLACES - 1;
    file.set_len(start + SPILL_PLACES * SPILLED_BYTES).unwrap();
    file.write_all_at(&words(&[5, 9, 3, SPILL_PLACES << 1]), start + before * SPILLED_BYTES).unwrap();
    file.write_all_at(&words(&[6, 8, 3, (SPILL_PLACES + 1) << 1 | 1]), start).unwrap();
    // The third is not written yet.
    file.write_all_at(&words(&[before + 3]), 80).unwrap();
    let (mut files, mut seen) = (Files::new(&place), Seen::default());
    files.open_new();
    files.files.get_mut(&0).unwrap().spill_tail = before;
    assert_eq!(files.read(&mut seen), 2);
    let freed = |time_ns, id, by_realloc| MallocEvent::Freed { time_ns, id, tid: 3, by_realloc };
    assert_eq!(seen.events, [freed(5, 9, false), freed(6, 8, true)]);
    assert_eq!(files.read(&mut seen), 0);
    assert_eq!(files.files[&0].word(SPILL_TAIL_OFFSET).unwrap(), before + 2);
    fs::remove_dir_all(&place).unwrap();
}

#[test]
fn a_program_that_is_not_to_be_seen_ends_by_its_own_word_when_all_is_taken() {
    let place = directory("word");
    let file = file_with_one_ring(&place.join("7-0.rings"), 40, 0);
    file.write_all_at(&words(&[2 | 40 << 32, 5, 9, 3, 0]), RECORDS).unwrap();
    let (mut files, mut seen) = (Files::new(&place), Seen::default());
    assert_eq!((files.read(&mut seen), files.files[&0].number), (1, None));
    assert_eq!(seen.ended, []);
    file.write_all_at(&words(&[2 | 40 << 32, 6, 8, 3, 0]), RECORDS + 40).unwrap();
    file.write_all_at(&words(&[80]), RING).unwrap();
    file.write_all_at(&words(&[1]), 64).unwrap();
    files.read(&mut seen);
    assert_eq!(seen.ended, [(0, 2)]);
    fs::remove_dir_all(&place).unwrap();
}

#[test]
fn of_a_process_that_has_ended_nothing_is_held_when_all_is_taken() {
    let place = directory("over");
    let namespace = fs::metadata("/proc/self/ns/pid").unwrap();
    let pids = [i64::from(i32::MAX), i64::from(std::process::id())];
    for pid in pids {
        let file = file_with_one_ring(&place.join(format!("{pid}-0.rings")), 40, 0);
        fs::write(place.join(format!("{pid}-0.maps")), "").unwrap();
        file.write_all_at(&words(&[2 | 40 << 32, 5, 9, 3, 0]), RECORDS).unwrap();
        file.write_all_at(&pid.to_ne_bytes(), 16).unwrap();
        file.write_all_at(&words(&[std::os::unix::fs::MetadataExt::ino(&namespace)]), 72).unwrap();
    }
    let (mut files, mut seen) = (Files::new(&place), Seen::default());
    assert_eq!((files.read(&mut seen), files.met), (2, 2));
    let over = files.over();
    assert_eq!(over.len(), 1);
    files.let_go(&over);
    let left: Vec<_> = fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let is_own = |name: &OsString| name.to_string_lossy().starts_with(&format!("{}-", pids[1]));
    assert!(left.len() == 2 && left.iter().all(is_own), "{left:?}");
    file_with_one_ring(&place.join("8-0.rings"), 0, 0);
    assert_eq!((files.read(&mut seen), files.met, files.files.len()), (0, 3, 2));
    fs::remove_dir_all(&place).unwrap();
}

#[test]
fn a_head_that_was_half_written_once_condemns_no_ring_and_nonsense_twice_does() {
    let place = directory("torn");
    let file = file_with_one_ring(&place.join("7-0.rings"), u64::MAX / 2, 0);
    let record = [2 | 40 << 32, 5, 9, 3, 0];
    file.write_all_at(&words(&[record; 3].concat()), RECORDS).unwrap();
    let (mut files, mut seen) = (Files::new(&place), Seen::default());
    let nonsense = u64::MAX / 2;
    let events = [nonsense, 40, nonsense, 40, nonsense, 80, nonsense, nonsense, 120].map(|head| {
        file.write_all_at(&words(&[head]), RING).unwrap();
        files.read(&mut seen)
    });
    assert_eq!(events, [0, 1, 0, 0, 0, 1, 0, 0, 0]);
    fs::remove_dir_all(&place).unwrap();
}

#[test]
fn what_stands_before_a_damaged_record_is_taken_once() {
    let place = directory("before");
    let file = file_with_one_ring(&place.join("7-0.rings"), 120, 0);
    let record = [2 | 40 << 32, 5, 9, 3, 0];
    file.write_all_at(&words(&[record; 2].concat()), RECORDS).unwrap();
    let (mut files, mut seen) = (Files::new(&place), Seen::default());
    assert_eq!([0; 4].map(|_| files.read(&mut seen)), [2, 0, 0, 0]);
    assert_eq!(files.files[&0].word(RING + 64).unwrap(), 80);
    assert_eq!(files.files[&0].senseless[&0], DAMAGED);
    fs::remove_dir_all(&place).unwrap();
}

#[test]
fn rings_that_make_no_sense_are_left_alone_and_files_cut_short_do_no_harm() {
    let place = directory("damaged");
    let file = file_with_one_ring(&place.join("7-0.rings"), u64::MAX / 2, 5);
    fs::write(place.join("8-0.rings"), b"short").unwrap();
    let (mut files, mut seen) = (Files::new(&place), Seen::default());
    assert_eq!((files.read(&mut seen), files.files.len(), files.unready), (0, 1, 1));
    file.set_len(100).unwrap();
    assert_eq!(files.read(&mut seen), 0);
    files.count(&mut seen);
    fs::remove_dir_all(&place).unwrap();
}
