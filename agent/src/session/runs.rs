//! Runs: their beginning, their dead, their output, their end.

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, waitid};

use super::{End, Session, SessionError};
use crate::clock;
use crate::protocol::{self, Event, Failure};
use crate::run::{Owner, Run};
use crate::sys;

impl Session {
    pub(super) fn begin_run(&mut self, request: &protocol::Run, owner: Owner) {
        self.last_serial += 1;
        let serial = self.last_serial;
        let cgroup =
            self.cgroup.as_ref().and_then(|cgroup| cgroup.create_run(serial, request.name.as_deref()));
        match Run::begin(request, owner.clone(), serial, cgroup, &self.poller, clock::monotonic_ns()) {
            Ok(run) => {
                self.runs.insert(serial, run);
            }
            Err(failure) => match owner {
                Owner::Request(id) => self.refuse(id, failure),
                Owner::Step(id) => self.step_ended(id, &Event::Error(failure), &Default::default()),
                Owner::Tool { facts, name } => self.tool_done(facts, &name, &Default::default()),
            },
        }
    }

    pub(super) fn feed(&mut self, id: u64, stdin: protocol::Stdin) {
        match self.runs.values_mut().find(|run| *run.owner() == Owner::Request(stdin.run)) {
            Some(run) => run.feed(id, stdin.data, stdin.eof, &self.poller, &mut self.outbox),
            None => {
                self.refuse(id, Failure::errno(format!("{} is no run in progress", stdin.run), Errno::ESRCH))
            }
        }
    }

    pub(super) fn take_turns(&mut self, id: u64, turns: &protocol::Turns) {
        let run = self.runs.values_mut().find(|run| *run.owner() == Owner::Request(turns.run));
        let taken = match run {
            Some(run) => run.take_turns(id, turns, clock::monotonic_ns()),
            None => Err(Failure::errno(format!("{} is no run in progress", turns.run), Errno::ESRCH)),
        };
        if let Err(failure) = taken {
            self.refuse(id, failure);
        }
    }

    pub(super) fn on_signal(&mut self) -> Option<End> {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            let number = signal.ssi_signo as i32;
            if number != Signal::SIGCHLD as i32 {
                return Some(End::Signal(number));
            }
        }
        self.reap();
        None
    }

    /// Reaps the dead. They are looked at before, because a run's first process must not be reaped before its group
    /// is killed: its number could be given to another.
    fn reap(&mut self) {
        let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        let now = clock::monotonic_ns();
        while let Some(pid) = waitid(Id::All, look).ok().and_then(|status| status.pid()) {
            match self.runs.values_mut().find(|run| run.is_led_by(pid.as_raw())) {
                Some(run) => run.on_leader_death(&mut self.outbox, now),
                None => {
                    sys::reap(pid);
                }
            }
        }
        for run in self.runs.values_mut() {
            run.look_whether_gone(now);
        }
        self.finish_runs();
    }

    /// Takes in output, each pipe in turn, while there is room.
    pub(super) fn on_bulk(&mut self) -> Result<(), SessionError> {
        for token in self.poller.bulk_ready()? {
            if !self.outbox.has_room() {
                break;
            }
            if let Some(run) = self.runs.get_mut(&token.serial) {
                run.on_output(token.part, &mut self.outbox);
            }
        }
        Ok(())
    }

    /// Sends the final events of those that are over.
    pub(super) fn finish_runs(&mut self) {
        while let Some(serial) =
            self.runs.iter().find(|(_, run)| run.is_finished()).map(|(&serial, _)| serial)
        {
            let Some(run) = self.runs.remove(&serial) else { return };
            let owner = run.owner().clone();
            let timed_out = run.has_timed_out();
            let (outcome, printed) = run.finish(&mut self.outbox);
            match owner {
                Owner::Request(id) => self.outbox.push(id, &outcome, &[]),
                Owner::Step(id) => self.step_ended(id, &outcome, &printed),
                Owner::Tool { facts, name } => {
                    let nothing = Default::default();
                    self.tool_done(facts, &name, if timed_out { &nothing } else { &printed });
                }
            }
        }
        self.begin_steps();
    }

    fn tool_done(&mut self, facts: u64, name: &str, printed: &[Vec<u8>; 2]) {
        if let Some(request) = self.facts.get_mut(&facts) {
            request.tool_done(name, printed);
            self.advance_facts(facts);
        }
    }

    /// Starts the next tools, or answers where none is left.
    pub(super) fn advance_facts(&mut self, id: u64) {
        while let Some((name, run)) = self.facts.get_mut(&id).and_then(|request| request.next_tool()) {
            self.begin_run(&run, Owner::Tool { facts: id, name });
        }
        if self.facts.get(&id).is_some_and(|request| request.is_complete())
            && let Some(request) = self.facts.remove(&id)
        {
            self.outbox.push(id, &Event::Facts(Box::new(request.into_facts())), &[]);
        }
    }
}
