//! What an owner can do next: malloc, free, the slow path under the lock, exit; and its stores on their way to memory.

use crate::state::{
    At, Cell, FIRST_BLOCK, GATE, LEAST_CAPACITY, NUMBERS, Need, Owner, State, Steps, bit, blocks_in,
};
use crate::{Memory, Part, Setting};

impl State {
    /// The states after a block was handed out: its holder may have written anything where the link was.
    fn after_hand_out(self, who: usize, block: i8, setting: &Setting, steps: &mut Steps) {
        steps.push(("returns", self));
        for garbage in 0..NUMBERS as i8 {
            let written = garbage != GATE && garbage < FIRST_BLOCK + setting.blocks;
            if written && (setting.any_garbage || garbage == 0) {
                let mut state = self;
                state.owners[who].push(Cell::Next(block), garbage);
                steps.push(("returns; the link is overwritten", state));
            }
        }
    }

    /// What an owner does under its bin's lock.
    fn locked_work(&self, who: usize, need: Need, setting: &Setting) -> Result<Steps, String> {
        let mut state = *self;
        let owner = self.owners[who];
        let (mut list, mut room) = (Vec::new(), owner.capacity);
        let head = owner.load(Cell::Head, owner.head);
        if head != GATE {
            (list, room) = (self.list_seen_by(&owner, head)?, owner.load(Cell::Room, owner.room));
            if room + list.len() as i8 != owner.capacity {
                return Err(format!("under the lock {list:?}, room {room}, capacity {}", owner.capacity));
            }
        }
        let mut steps = Vec::new();
        match need {
            Need::Exit => {
                state.central |= list.iter().fold(0, |set, &block| set | bit(block));
                state.unlock_with(who, &[], LEAST_CAPACITY);
                state.owners[who].at = At::Gone;
                steps.push(("exits", state));
            }
            Need::Free(block) => {
                let mut capacity = owner.capacity;
                if room <= 0 && capacity < setting.most_capacity {
                    capacity += 1;
                } else if room <= 0 {
                    state.central |= list.drain(..).fold(0, |set, block| set | bit(block));
                }
                state.live &= !bit(block);
                list.insert(0, block);
                state.unlock_with(who, &list, capacity);
                steps.push(("frees under the lock", state));
            }
            Need::Malloc if !list.is_empty() => {
                state.hand_out(who, list[0])?;
                state.unlock_with(who, &list[1..], owner.capacity);
                state.after_hand_out(who, list[0], setting, &mut steps);
            }
            Need::Malloc => {
                // As many blocks as central has, up to one more than the list may keep; or nothing is left.
                let fetched: Vec<i8> = blocks_in(state.central).take(owner.capacity as usize + 1).collect();
                for block in &fetched {
                    state.central &= !bit(*block);
                }
                if let Some((&block, rest)) = fetched.split_first() {
                    state.hand_out(who, block)?;
                    state.unlock_with(who, rest, owner.capacity);
                    state.after_hand_out(who, block, setting, &mut steps);
                } else {
                    state.unlock_with(who, &[], owner.capacity);
                    steps.push(("returns nothing", state));
                }
            }
        }
        Ok(steps)
    }

    fn unlock_with(&mut self, who: usize, list: &[i8], capacity: i8) {
        let owner = &mut self.owners[who];
        for (place, &block) in list.iter().enumerate() {
            owner.push(Cell::Next(block), list.get(place + 1).copied().unwrap_or(0));
        }
        owner.push(Cell::Capacity, capacity);
        owner.push(Cell::Room, capacity - list.len() as i8);
        owner.push(Cell::Head, list.first().copied().unwrap_or(0));
        owner.push(Cell::Lock, 0);
        owner.at = At::Idle;
    }

    /// The state after `malloc` has read `head`, having counted `room` up.
    fn with_malloc_head(mut self, who: usize, head: i8) -> State {
        let owner = &mut self.owners[who];
        owner.at = At::MallocNext(head);
        if head <= GATE {
            owner.add_to_room(-1);
            owner.at = At::Waiting(Need::Malloc);
        }
        self
    }

    /// The state after `free` has read `head`, having counted `room` down.
    fn with_free_head(mut self, who: usize, block: i8, head: i8) -> State {
        let owner = &mut self.owners[who];
        if head == GATE || owner.load(Cell::Room, owner.room) < 0 {
            owner.add_to_room(1);
            owner.at = At::Waiting(Need::Free(block));
        } else {
            owner.push(Cell::Next(block), head);
            owner.push(Cell::Head, block);
            owner.at = At::Idle;
            self.live &= !bit(block);
        }
        self
    }

    pub fn owner_steps(&self, who: usize, setting: &Setting, steps: &mut Steps) -> Result<(), String> {
        let me = &self.owners[who];
        let with = |change: &dyn Fn(&mut State, &mut Owner)| {
            let (mut state, mut owner) = (*self, *me);
            change(&mut state, &mut owner);
            state.owners[who] = owner;
            state
        };
        for place in me.drainable(setting) {
            let mut state = *self;
            state.drain(who, place);
            steps.push(("a store reaches memory", state));
        }
        let is_weak = setting.memory == Memory::Weak;
        match me.at {
            At::Gone => {}
            At::Idle => {
                steps.push(("begins to exit", with(&|_, owner| owner.at = At::Waiting(Need::Exit))));
                if me.operations == 0 || !me.has_space(1, setting) {
                    return Ok(());
                }
                let operation = |change: &dyn Fn(&mut State, &mut Owner)| {
                    with(&|state, owner| {
                        owner.operations -= 1;
                        change(state, owner);
                    })
                };
                if setting.without == Some(Part::RoomBeforeHead) {
                    let head = me.load(Cell::Head, me.head);
                    steps.push((
                        "malloc: reads head too early",
                        operation(&|_, owner| owner.at = At::MallocRoomTooLate(head)),
                    ));
                } else {
                    let state = operation(&|_, owner| {
                        owner.add_to_room(1);
                        owner.at = At::MallocHead;
                    });
                    steps.push(("malloc: room + 1", state));
                }
                if is_weak {
                    let head = me.load(Cell::Head, me.head);
                    steps.push((
                        "malloc: reads head ahead",
                        with(&|_, owner| owner.at = At::MallocEarly(head)),
                    ));
                }
                for block in blocks_in(me.held) {
                    if is_weak {
                        let head = me.load(Cell::Head, me.head);
                        let state = with(&|_, owner| owner.at = At::FreeEarly(block, head));
                        steps.push(("free: reads head ahead", state));
                    }
                    let state = operation(&|_, owner| {
                        owner.held &= !bit(block);
                        owner.at = At::FreeHead(block);
                        owner.add_to_room(-1);
                    });
                    steps.push(("free: room - 1", state));
                    if setting.owners > 1 {
                        let state = operation(&|_, owner| {
                            owner.held &= !bit(block);
                            owner.push(Cell::Given(block), 1);
                        });
                        steps.push(("gives a block away", state));
                    }
                }
                for block in blocks_in(self.given).filter(|_| is_weak || me.waiting_stores == 0) {
                    let state = operation(&|state, owner| {
                        state.given &= !bit(block);
                        owner.held |= bit(block);
                    });
                    steps.push(("takes a given block", state));
                }
            }
            At::MallocEarly(head) if me.has_space(2, setting) => {
                let mut state = *self;
                state.owners[who].operations -= 1;
                state.owners[who].add_to_room(1);
                steps.push(("malloc: room + 1, with a head read ahead", state.with_malloc_head(who, head)));
            }
            At::FreeEarly(block, head) if me.has_space(3, setting) => {
                let mut state = *self;
                let owner = &mut state.owners[who];
                owner.operations -= 1;
                owner.held &= !bit(block);
                owner.add_to_room(-1);
                steps
                    .push(("free: room - 1, with a head read ahead", state.with_free_head(who, block, head)));
            }
            At::MallocHead if me.has_space(1, setting) => {
                let head = me.load(Cell::Head, me.head);
                steps.push(("malloc: reads head", self.with_malloc_head(who, head)));
            }
            At::MallocRoomTooLate(head) if me.has_space(1, setting) => {
                let state = with(&|_, owner| {
                    owner.at = At::Waiting(Need::Malloc);
                    if head > GATE {
                        owner.add_to_room(1);
                        owner.at = At::MallocNext(head);
                    }
                });
                steps.push(("malloc: room + 1, too late", state));
            }
            At::MallocNext(block) if me.has_space(2, setting) => {
                let next = me.load(Cell::Next(block), self.next[block as usize]);
                let mut state = with(&|_, owner| {
                    if setting.without == Some(Part::HeadBeforeUse) {
                        owner.at = At::MallocHeadTooLate(next);
                    } else {
                        owner.push(Cell::Head, next);
                        owner.at = At::Idle;
                    }
                });
                state.hand_out(who, block)?;
                state.after_hand_out(who, block, setting, steps);
            }
            At::MallocHeadTooLate(next) if me.has_space(1, setting) => {
                let state = with(&|_, owner| {
                    owner.push(Cell::Head, next);
                    owner.at = At::Idle;
                });
                steps.push(("malloc: stores head too late", state));
            }
            At::FreeHead(block) if me.has_space(2, setting) => {
                let head = me.load(Cell::Head, me.head);
                steps.push(("free: reads head", self.with_free_head(who, block, head)));
            }
            At::Waiting(need) if me.may_lock(setting) && !me.locked => {
                let state = with(&|_, owner| {
                    owner.locked = true;
                    owner.at = At::Locked(need);
                });
                steps.push(("locks its bin", state));
            }
            At::Locked(need) => steps.extend(self.locked_work(who, need, setting)?),
            At::MallocEarly(_)
            | At::FreeEarly(..)
            | At::MallocHead
            | At::MallocRoomTooLate(_)
            | At::MallocNext(_)
            | At::MallocHeadTooLate(_)
            | At::FreeHead(_)
            | At::Waiting(_) => {}
        }
        Ok(())
    }
}
