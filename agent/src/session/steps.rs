//! Requests of several steps: so many at once are with threads of their own, the others wait here, or for a program.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;

use nix::errno::Errno;

use super::Session;
use crate::clock;
use crate::poller::{Interest, Part, Token};
use crate::protocol::{self, Event, Failure, Steps};
use crate::run::Owner;
use crate::steps::{AT_ONCE, Progress, StepThreads, Stopped};

#[derive(Debug, Default)]
pub(super) struct StepRequests {
    threads: Option<StepThreads>,
    waiting: VecDeque<Progress>,
    underway: BTreeMap<u64, Stopped>,
    running: BTreeMap<u64, Progress>,
}

impl StepRequests {
    pub(super) fn has(&self, id: u64) -> bool {
        self.underway.contains_key(&id)
            || self.running.contains_key(&id)
            || self.waiting.iter().any(|waiting| waiting.id == id)
    }

    /// Is nothing in progress?
    pub(super) fn is_idle(&self) -> bool {
        self.underway.is_empty() && self.running.is_empty() && self.waiting.is_empty()
    }

    /// Bytes that wait to be written.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting.iter().map(Progress::waiting_bytes).sum()
    }
}

impl Session {
    pub(super) fn queue_steps(&mut self, id: u64, steps: Steps) {
        if let Err(failure) = self.prepare_step_threads() {
            return self.refuse(id, failure);
        }
        self.steps.waiting.push_back(Progress::new(id, steps));
        self.begin_steps();
    }

    /// Carries out what waits, as far as there is room for what it brings.
    pub(super) fn begin_steps(&mut self) {
        while self.steps.underway.len() < AT_ONCE && self.outbox.has_room() {
            let (Some(threads), Some(request)) = (&self.steps.threads, self.steps.waiting.pop_front()) else {
                return;
            };
            let id = request.id;
            if let Some(program) = request.program().map(protocol::Program::as_run) {
                self.steps.running.insert(id, request);
                self.begin_run(&program, Owner::Step(id));
                continue;
            }
            let stopped = Stopped::default();
            match threads.begin(request, Stopped::clone(&stopped)) {
                Ok(()) => drop(self.steps.underway.insert(id, stopped)),
                Err(error) => self.refuse(id, Failure::io("can't start a thread", &error)),
            }
        }
    }

    pub(super) fn on_steps(&mut self) {
        let outcomes = self.steps.threads.as_ref().map(StepThreads::outcomes).unwrap_or_default();
        for mut request in outcomes {
            if let Some(stopped) = self.steps.underway.remove(&request.id) {
                request.advance(&stopped); // which says so if it was stopped after it had come to a program
            }
            self.resume_steps(request);
        }
        self.begin_steps();
    }

    /// The program that such a request was at has ended so.
    pub(super) fn step_ended(&mut self, id: u64, outcome: &Event, printed: &[Vec<u8>; 2]) {
        if let Some(mut request) = self.steps.running.remove(&id) {
            request.program_ended(outcome, printed);
            self.resume_steps(request);
        }
    }

    /// Answers it, or lets it go on before those that have not begun.
    fn resume_steps(&mut self, request: Progress) {
        if request.is_over() {
            self.outbox.push(request.id, &Event::Steps { results: request.results }, &request.contents);
        } else {
            self.steps.waiting.push_front(request);
        }
    }

    /// Ends such a request after the step that it is at, or with the program; false where there is none of this number.
    pub(super) fn stop_steps(&mut self, stop: &protocol::Stop) -> bool {
        let id = stop.run;
        if let Some(stopped) = self.steps.underway.get(&id) {
            stopped.store(true, Ordering::Relaxed);
            return true;
        }
        if let Some(run) = self.runs.values_mut().find(|run| *run.owner() == Owner::Step(id)) {
            run.stop(stop.signal, stop.grace_ns, clock::monotonic_ns());
            return true;
        }
        let before = self.steps.waiting.len();
        self.steps.waiting.retain(|waiting| waiting.id != id);
        let was_there = self.steps.waiting.len() < before;
        if was_there {
            self.refuse(id, Failure::errno("it was stopped before it began", Errno::ECANCELED));
        }
        was_there
    }

    /// Ends all of them.
    pub(super) fn cancel_steps(&mut self) {
        for request in std::mem::take(&mut self.steps.waiting) {
            self.refuse(request.id, Failure::errno("the agent is shutting down", Errno::ECANCELED));
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
