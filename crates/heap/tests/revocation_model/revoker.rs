//! What the revoker does next.

use crate::state::{GATE, LEAST_CAPACITY, OWNERS, Revoker, State, Steps, TRIES, bit};
use crate::{Memory, Part, Setting};

/// No list that was gated.
const LEFT_ALONE: i8 = GATE;
/// What only the second barrier shows.
pub const WON_LATE: &str = "revoker: the owner won, as the second barrier shows";

impl State {
    pub fn revoker_steps(&self, setting: &Setting, steps: &mut Steps) -> Result<(), String> {
        let mut state = *self;
        let what = match self.revoker {
            Revoker::Rest if self.revocations == 0 => return Ok(()),
            Revoker::Rest => {
                state.revocations -= 1;
                state.lists = [LEFT_ALONE; OWNERS];
                state.revoker = Revoker::Lock(0);
                "revoker begins"
            }
            Revoker::Lock(bin) => {
                let owner = &mut state.owners[bin as usize];
                if owner.locked {
                    return Ok(());
                }
                owner.locked = true;
                // A gated bin, or an empty one of the least capacity, is left alone; the look and the exchange are two steps.
                let has_something = owner.head > GATE || (owner.head == 0 && owner.capacity > LEAST_CAPACITY);
                state.revoker =
                    if has_something { Revoker::Exchange(bin) } else { state.after_gating(bin, setting) };
                "revoker locks, looks at head"
            }
            Revoker::Exchange(bin) => {
                state.lists[bin as usize] = std::mem::replace(&mut state.owners[bin as usize].head, GATE);
                state.revoker = state.after_gating(bin, setting);
                "revoker exchanges head with the gate"
            }
            Revoker::Barrier(bin) => {
                state.pass_barrier(bin as usize);
                let following = bin + 1;
                state.revoker = if following < setting.owners as u8 {
                    Revoker::Barrier(following)
                } else {
                    self.settling(0)
                };
                "revoker's barrier empties a buffer"
            }
            Revoker::ReadRoom(bin, attempt) => {
                let (room, block) = (self.owners[bin as usize].room, self.lists[bin as usize]);
                state.revoker = Revoker::Walk { bin, attempt, room, block, length: 0 };
                "revoker reads room"
            }
            Revoker::Walk { bin, attempt, room, block, length } => {
                state.revoker = if block == 0 {
                    Revoker::ReadHead { bin, attempt, room, length }
                } else if length > self.owners[bin as usize].capacity {
                    Revoker::ReadHead { bin, attempt, room, length: i8::MAX / 2 }
                } else {
                    let block = self.next[block as usize];
                    Revoker::Walk { bin, attempt, room, block, length: length + 1 }
                };
                "revoker walks"
            }
            Revoker::ReadHead { bin, attempt, room, length } => {
                let owner = &mut state.owners[bin as usize];
                let needs_second =
                    setting.memory == Memory::Weak && setting.without != Some(Part::SecondBarrier);
                let sum_holds = room + length == owner.capacity || setting.without == Some(Part::SumCheck);
                if owner.head != GATE {
                    state.revoker = Revoker::Unlock(bin);
                    "revoker: the owner won"
                } else if sum_holds && needs_second {
                    state.revoker = Revoker::BarrierAgain { bin, owner: 0 };
                    "revoker: the sum holds"
                } else if sum_holds {
                    state.take(bin)?;
                    "revoker takes the list"
                } else {
                    let again = attempt + 1 < TRIES;
                    state.revoker =
                        if again { Revoker::ReadRoom(bin, attempt + 1) } else { Revoker::Undo(bin) };
                    "revoker: the sum does not hold"
                }
            }
            Revoker::BarrierAgain { bin, owner } => {
                state.pass_barrier(owner as usize);
                let following = owner + 1;
                state.revoker = if following < setting.owners as u8 {
                    Revoker::BarrierAgain { bin, owner: following }
                } else {
                    Revoker::ReadHeadAgain(bin)
                };
                "revoker's second barrier empties a buffer"
            }
            Revoker::ReadHeadAgain(bin) => {
                if self.owners[bin as usize].head == GATE {
                    state.take(bin)?;
                    "revoker takes the list"
                } else {
                    state.revoker = Revoker::Unlock(bin);
                    WON_LATE
                }
            }
            Revoker::Undo(bin) => {
                let head = &mut state.owners[bin as usize].head;
                if *head == GATE || setting.without == Some(Part::CompareInUndo) {
                    *head = self.lists[bin as usize];
                }
                state.revoker = Revoker::Unlock(bin);
                "revoker undoes"
            }
            Revoker::Unlock(bin) => {
                state.owners[bin as usize].locked = false;
                let following = bin + 1;
                state.revoker =
                    if following < setting.owners as u8 { self.settling(following) } else { Revoker::Rest };
                "revoker unlocks"
            }
        };
        steps.push((what, state));
        Ok(())
    }

    fn take(&mut self, bin: u8) -> Result<(), String> {
        let taken = self.list(self.lists[bin as usize])?;
        self.owners[bin as usize].capacity = LEAST_CAPACITY;
        self.central |= taken.iter().fold(0, |set, &block| set | bit(block));
        self.revoker = Revoker::Unlock(bin);
        Ok(())
    }

    /// What follows when the barrier is passed, or the bin before this one is settled.
    fn settling(&self, bin: u8) -> Revoker {
        if self.lists[bin as usize] == LEFT_ALONE { Revoker::Unlock(bin) } else { Revoker::ReadRoom(bin, 0) }
    }

    /// What follows when the bin is gated: the next bin, then the barrier.
    fn after_gating(&self, bin: u8, setting: &Setting) -> Revoker {
        let following = bin + 1;
        if following < setting.owners as u8 {
            Revoker::Lock(following)
        } else if setting.without == Some(Part::Barrier) {
            self.settling(0)
        } else {
            Revoker::Barrier(0)
        }
    }
}
