//! What a state of the model is, what stores do to it, and what must hold in it.

use crate::{Memory, Setting};

pub const GATE: i8 = 1;
/// Blocks are the numbers from here on; 0 is the end of a list.
pub const FIRST_BLOCK: i8 = 2;
pub const NUMBERS: usize = 6;
pub const OWNERS: usize = 2;
const BUFFERED: usize = 12;
/// Stores under the lock but those to links of the list: capacity, room, head, the lock, and one to what is handed out.
const LOCKED_STORES: usize = 5;
pub const LEAST_CAPACITY: i8 = 1;
pub const TRIES: u8 = 2;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cell {
    Head,
    Room,
    Capacity,
    Lock,
    Next(i8),
    /// The store by which a block is given to whoever takes it.
    Given(i8),
    Nothing,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Need {
    Malloc,
    Free(i8),
    Exit,
}

/// Where an owner is; the numbers are its registers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum At {
    Idle,
    /// An operation's `head` was read before its `room` was written, as a processor may; a barrier in between undoes it.
    MallocEarly(i8),
    FreeEarly(i8, i8),
    MallocHead,
    MallocRoomTooLate(i8),
    MallocNext(i8),
    /// A block was handed out, and `head` is yet to be stored.
    MallocHeadTooLate(i8),
    FreeHead(i8),
    Waiting(Need),
    Locked(Need),
    Gone,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Owner {
    pub at: At,
    pub held: u8,
    pub operations: u8,
    pub buffer: [(Cell, i8); BUFFERED],
    pub waiting_stores: u8,
    pub head: i8,
    pub room: i8,
    pub capacity: i8,
    pub locked: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Revoker {
    Rest,
    Lock(u8),
    Exchange(u8),
    Barrier(u8),
    ReadRoom(u8, u8),
    Walk { bin: u8, attempt: u8, room: i8, block: i8, length: i8 },
    ReadHead { bin: u8, attempt: u8, room: i8, length: i8 },
    BarrierAgain { bin: u8, owner: u8 },
    ReadHeadAgain(u8),
    Undo(u8),
    Unlock(u8),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct State {
    pub owners: [Owner; OWNERS],
    pub next: [i8; NUMBERS],
    /// Sets of blocks: bit n is block n. Live ones are handed out and not yet back in a list.
    pub live: u8,
    pub central: u8,
    pub given: u8,
    pub revoker: Revoker,
    pub lists: [i8; OWNERS],
    pub revocations: u8,
}

pub type Steps = Vec<(&'static str, State)>;

pub fn bit(block: i8) -> u8 {
    1 << block
}

pub fn blocks_in(set: u8) -> impl Iterator<Item = i8> {
    (FIRST_BLOCK..NUMBERS as i8).filter(move |&block| set & bit(block) != 0)
}

impl Owner {
    pub fn push(&mut self, cell: Cell, value: i8) {
        self.buffer[self.waiting_stores as usize] = (cell, value);
        self.waiting_stores += 1;
    }

    /// The youngest store to the cell that waits in the owner's own buffer, else memory.
    pub fn load(&self, cell: Cell, memory: i8) -> i8 {
        let waiting = self.buffer[..self.waiting_stores as usize].iter().rev();
        waiting.copied().find(|&(stored, _)| stored == cell).map_or(memory, |(_, value)| value)
    }

    pub fn add_to_room(&mut self, change: i8) -> i8 {
        let room = self.load(Cell::Room, self.room) + change;
        self.push(Cell::Room, room);
        room
    }

    /// Which waiting stores may reach memory next: on x86-TSO the oldest; else each that is no older one's to the same cell, but a
    /// release only as the oldest.
    pub fn drainable(&self, setting: &Setting) -> impl Iterator<Item = usize> {
        let (buffer, is_tso) = (self.buffer, setting.memory == Memory::Tso);
        (0..self.waiting_stores as usize).filter(move |&place| {
            let cell = buffer[place].0;
            let is_release = matches!(cell, Cell::Lock | Cell::Given(_));
            place == 0 || !is_tso && !is_release && buffer[..place].iter().all(|&(older, _)| older != cell)
        })
    }

    /// Whether it may take its lock with what waits: on x86 a locked instruction empties the buffer.
    pub fn may_lock(&self, setting: &Setting) -> bool {
        let most = match setting.memory {
            Memory::Tso => 0,
            Memory::Weak => BUFFERED - LOCKED_STORES - setting.blocks as usize,
        };
        self.waiting_stores as usize <= most
    }

    pub fn has_space(&self, stores: usize, setting: &Setting) -> bool {
        self.waiting_stores as usize + stores <= setting.buffered
    }
}

impl State {
    pub fn new(setting: &Setting) -> State {
        let owner = Owner {
            at: At::Idle,
            held: 0,
            operations: setting.operations,
            buffer: [(Cell::Nothing, 0); BUFFERED],
            waiting_stores: 0,
            head: 0,
            room: setting.most_capacity,
            capacity: setting.most_capacity,
            locked: false,
        };
        let mut owners = [owner; OWNERS];
        for absent in &mut owners[setting.owners..] {
            absent.at = At::Gone;
        }
        let all = (FIRST_BLOCK..FIRST_BLOCK + setting.blocks).fold(0, |set, block| set | bit(block));
        State {
            owners,
            next: [0; NUMBERS],
            live: 0,
            central: all,
            given: 0,
            revoker: Revoker::Rest,
            lists: [0; OWNERS],
            revocations: setting.revocations,
        }
    }

    /// A processor's full barrier: its stores are in memory, and what it read ahead is read again.
    pub fn pass_barrier(&mut self, who: usize) {
        while self.owners[who].waiting_stores > 0 {
            self.drain(who, 0);
        }
        let at = &mut self.owners[who].at;
        if matches!(at, At::MallocEarly(_) | At::FreeEarly(..)) {
            *at = At::Idle;
        }
    }

    /// A waiting store of an owner reaches memory.
    pub fn drain(&mut self, who: usize, place: usize) {
        let owner = &mut self.owners[who];
        let (cell, value) = owner.buffer[place];
        owner.buffer.copy_within(place + 1.., place);
        owner.buffer[BUFFERED - 1] = (Cell::Nothing, 0);
        owner.waiting_stores -= 1;
        match cell {
            Cell::Head => owner.head = value,
            Cell::Room => owner.room = value,
            Cell::Capacity => owner.capacity = value,
            Cell::Lock => owner.locked = false,
            Cell::Next(block) => self.next[block as usize] = value,
            Cell::Given(block) => self.given |= bit(block),
            Cell::Nothing => {}
        }
    }

    /// The blocks of a list in memory; an error if it does not end or a block is where it must not be.
    pub fn list(&self, block: i8) -> Result<Vec<i8>, String> {
        self.list_by(block, |block| self.next[block as usize])
    }

    /// As [`State::list`], as an owner sees it.
    pub fn list_seen_by(&self, owner: &Owner, block: i8) -> Result<Vec<i8>, String> {
        self.list_by(block, |block| owner.load(Cell::Next(block), self.next[block as usize]))
    }

    fn list_by(&self, mut block: i8, next: impl Fn(i8) -> i8) -> Result<Vec<i8>, String> {
        let mut blocks = Vec::new();
        while block != 0 {
            if block < FIRST_BLOCK || blocks.contains(&block) {
                return Err(format!("a list is broken at {block}: {blocks:?}"));
            }
            if (self.live | self.central) & bit(block) != 0 {
                return Err(format!("block {block} is in a list and also handed out or central"));
            }
            blocks.push(block);
            block = next(block);
        }
        Ok(blocks)
    }

    pub fn hand_out(&mut self, who: usize, block: i8) -> Result<(), String> {
        if (self.live | self.central) & bit(block) != 0 {
            return Err(format!("block {block} is handed out while live or central"));
        }
        self.live |= bit(block);
        self.owners[who].held |= bit(block);
        Ok(())
    }

    /// Every block is in exactly one place, and counts are exact; asked when all rest.
    pub fn check_rest(&self, setting: &Setting) -> Result<(), String> {
        let resting = |owner: &Owner| matches!(owner.at, At::Idle | At::Gone) && owner.waiting_stores == 0;
        if self.revoker != Revoker::Rest || !self.owners.iter().all(resting) {
            return Ok(());
        }
        let mut found = self.live | self.central;
        let mut count = self.live.count_ones() + self.central.count_ones();
        for owner in self.owners.iter().filter(|owner| owner.head != GATE) {
            let list = self.list(owner.head)?;
            if owner.room + list.len() as i8 != owner.capacity {
                return Err(format!("at rest {list:?}, room {}, capacity {}", owner.room, owner.capacity));
            }
            count += list.len() as u32;
            found |= list.iter().fold(0, |set, &block| set | bit(block));
        }
        let (all, held) =
            (setting.blocks as u32, self.owners.iter().fold(self.given, |set, owner| set | owner.held));
        if found.count_ones() != all || count != all || held != self.live {
            return Err(format!(
                "of {all} blocks {} are somewhere, {count} places hold one",
                found.count_ones()
            ));
        }
        Ok(())
    }
}
