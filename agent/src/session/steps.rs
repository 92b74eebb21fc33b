//! Requests of several steps: so many at once are with threads of their own, the others wait here.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;

use nix::errno::Errno;

use super::Session;
use crate::poller::{Interest, Part, Token};
use crate::protocol::{Event, Failure, Steps};
use crate::steps::{AT_ONCE, StepThreads, Stopped};

/// What is under way, and what waits.
#[derive(Debug, Default)]
pub(super) struct StepRequests {
    threads: Option<StepThreads>,
    waiting: VecDeque<(u64, Steps)>,
    underway: BTreeMap<u64, Stopped>,
}

impl StepRequests {
    /// Is this request in progress?
    pub(super) fn has(&self, id: u64) -> bool {
        self.underway.contains_key(&id) || self.waiting.iter().any(|(waiting, _)| *waiting == id)
    }

    /// Is nothing in progress?
    pub(super) fn is_idle(&self) -> bool {
        self.underway.is_empty() && self.waiting.is_empty()
    }

    /// Bytes that wait to be written.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting.iter().map(|(_, steps)| steps.data.len()).sum()
    }
}

impl Session {
    pub(super) fn queue_steps(&mut self, id: u64, steps: Steps) {
        if let Err(failure) = self.prepare_step_threads() {
            return self.refuse(id, failure);
        }
        self.steps.waiting.push_back((id, steps));
        self.begin_steps();
    }

    /// Carries out what waits, as far as there is room for what it brings.
    pub(super) fn begin_steps(&mut self) {
        while self.steps.underway.len() < AT_ONCE && self.outbox.has_room() {
            let (Some(threads), Some((id, steps))) = (&self.steps.threads, self.steps.waiting.pop_front())
            else {
                return;
            };
            let stopped = Stopped::default();
            match threads.begin(id, steps, Stopped::clone(&stopped)) {
                Ok(()) => drop(self.steps.underway.insert(id, stopped)),
                Err(error) => self.refuse(id, Failure::io("can't start a thread", &error)),
            }
        }
    }

    pub(super) fn on_steps(&mut self) {
        let outcomes = self.steps.threads.as_ref().map(StepThreads::outcomes).unwrap_or_default();
        for outcome in outcomes {
            self.steps.underway.remove(&outcome.id);
            self.outbox.push(outcome.id, &Event::Steps { results: outcome.results }, &outcome.contents);
        }
        self.begin_steps();
    }

    /// Ends such a request after the step that it is at; false where there is none of this number.
    pub(super) fn stop_steps(&mut self, id: u64) -> bool {
        if let Some(stopped) = self.steps.underway.get(&id) {
            stopped.store(true, Ordering::Relaxed);
            return true;
        }
        let before = self.steps.waiting.len();
        self.steps.waiting.retain(|(waiting, _)| *waiting != id);
        let was_there = self.steps.waiting.len() < before;
        if was_there {
            self.refuse(id, Failure::errno("it was stopped before it began", Errno::ECANCELED));
        }
        was_there
    }

    /// Ends all of them.
    pub(super) fn cancel_steps(&mut self) {
        for (id, _) in std::mem::take(&mut self.steps.waiting) {
            self.refuse(id, Failure::errno("the agent is shutting down", Errno::ECANCELED));
        }
        for stopped in self.steps.underway.values() {
            stopped.store(true, Ordering::Relaxed);
        }
    }

    fn prepare_step_threads(&mut self) -> Result<(), Failure> {
        if self.steps.threads.is_none() {
            let cant = |error: std::io::Error| Failure::io("can't carry out steps", &error);
            let threads = StepThreads::new().map_err(cant)?;
            self.poller
                .watch(threads.bell(), Token::session(Part::Steps), Interest::Read)
                .map_err(|errno| cant(errno.into()))?;
            self.steps.threads = Some(threads);
        }
        Ok(())
    }
}
