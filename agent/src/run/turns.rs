//! A run that works in turns: held, let go at agreed instants, and held again at others.
//!
//! Several runs, of this agent or of others, share a machine so, one after the other in short slices. All is done here
//! by the clock of the node, so that no round trip lies between.

use std::collections::VecDeque;

use super::{Run, Stage};
use crate::clock::{MILLISECOND, monotonic_ns};
use crate::outbox::Outbox;
use crate::protocol::{self, Event, Failure};

/// How often to look whether all of a run stand still.
const LOOK_AGAIN_NS: u64 = MILLISECOND / 2;
/// After how many looks to let those that were stopped finish what others wait for.
const STIR_AFTER: u32 = 40;

#[derive(Debug, Clone, Copy)]
enum State {
    /// It is to stand still; it was let go at this instant, unless it never was in a turn.
    Holding {
        since: Option<u64>,
        look_again_at: u64,
        looks: u32,
    },
    Held,
    Working {
        since: u64,
    },
}

#[derive(Debug)]
pub struct Turns {
    request: u64,
    planned: VecDeque<(u64, u64)>,
    taken: Vec<(u64, u64)>,
    state: State,
}

impl Run {
    /// Holds it at once, and then lets it work in these turns. Answered when the last is over; it is still held then.
    pub fn take_turns(&mut self, request: u64, turns: &protocol::Turns, now: u64) -> Result<(), Failure> {
        if self.turns.is_some() {
            return Err(Failure::new("the run is taking turns already"));
        }
        if self.stage != Stage::Alive || self.start.is_none() || self.stopped_by.is_some() {
            return Err(Failure::new("the run has not started, or is ending"));
        }
        self.family.hold();
        self.turns = Some(Turns {
            request,
            planned: turns.turns.iter().copied().collect(),
            taken: Vec::new(),
            state: State::Holding { since: None, look_again_at: now, looks: 0 },
        });
        Ok(())
    }

    pub fn on_turn(&mut self, mut now: u64, outbox: &mut Outbox) {
        let Some(turns) = &mut self.turns else { return };
        loop {
            match turns.state {
                State::Holding { since, look_again_at, looks } if look_again_at <= now => {
                    if !self.family.is_held() {
                        if looks % STIR_AFTER == STIR_AFTER - 1 {
                            self.family.stir();
                        } else {
                            self.family.hold(); // what was forked meanwhile, too, where there is no freezer
                        }
                        let look_again_at = now + LOOK_AGAIN_NS;
                        turns.state = State::Holding { since, look_again_at, looks: looks.wrapping_add(1) };
                        return;
                    }
                    // Asking takes its time on a busy machine, and they work until they stand: the clock is read after it,
                    // also for what follows, as no turn begins before the last one's end.
                    now = monotonic_ns();
                    turns.taken.extend(since.map(|since| (since, now)));
                    turns.state = State::Held;
                }
                State::Held => match turns.planned.front() {
                    None => {
                        let taken = std::mem::take(&mut turns.taken);
                        outbox.push(turns.request, &Event::Turns { turns: taken }, &[]);
                        self.turns = None;
                        return;
                    }
                    // The one before ended late, because of what could not be interrupted: there is nothing left of it.
                    Some(&(_, to)) if to <= now => {
                        turns.planned.pop_front();
                        turns.taken.push((now, now));
                    }
                    Some(&(from, _)) if from <= now => {
                        self.family.let_go();
                        turns.state = State::Working { since: now };
                    }
                    Some(_) => return,
                },
                State::Working { since } if turns.planned.front().is_none_or(|&(_, to)| to <= now) => {
                    turns.planned.pop_front();
                    self.family.hold();
                    turns.state = State::Holding { since: Some(since), look_again_at: now, looks: 0 };
                }
                _ => return,
            }
        }
    }

    /// Whoever waits for its turns gets no more of them: it is asked to end, which it can't do while it is held.
    pub(super) fn give_up_turns(&mut self) {
        self.family.let_go();
        if let Some(turns) = self.turns.take() {
            self.turns_given_up = Some(turns.request);
        }
    }

    /// Answers for turns that a run did not live to see the end of.
    pub(super) fn refuse_turns(&self, outbox: &mut Outbox) {
        let waiting = self.turns.as_ref().map(|turns| turns.request).or(self.turns_given_up);
        if let Some(request) = waiting {
            outbox.push(request, &Event::Error(Failure::new("the run ended before its turns did")), &[]);
        }
    }
}

impl Turns {
    /// When there is something to do, on `CLOCK_MONOTONIC`.
    pub fn deadline(&self) -> Option<u64> {
        match self.state {
            State::Holding { look_again_at, .. } => Some(look_again_at),
            State::Held => self.planned.front().map(|&(from, _)| from),
            State::Working { .. } => self.planned.front().map(|&(_, to)| to),
        }
    }
}
