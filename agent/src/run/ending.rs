//! How a run is ended, and how it ends.

use super::output::OutputPipe;
use super::{End, Run, Stage, StoppedBy};
use crate::clock::{MILLISECOND, SECOND};
use crate::outbox::Outbox;
use crate::perf::Counters;
use crate::protocol::{Event, Exit, Failure, Survivors};
use crate::sys;
use nix::sys::signal::Signal;
use std::os::unix::process::ExitStatusExt;

/// How long to wait for killed processes. One that hangs in the kernel (a dead disk) may never die.
const GIVE_UP_NS: u64 = 5 * SECOND;
/// How often to look whether killed processes are gone.
const LOOK_AGAIN_NS: u64 = 10 * MILLISECOND;

impl Run {
    /// Asks it to end, and kills it after the grace. A second stop can only shorten the grace. A signal of its own goes
    /// to the first process alone, which knows how to end the others; those that it leaves get a TERM.
    pub fn stop(&mut self, signal: Option<Signal>, grace_ns: u64, now: u64) {
        if grace_ns == 0 {
            return self.kill(now);
        }
        let kill_at = now.saturating_add(grace_ns);
        match self.stopped_by {
            None if self.stage == Stage::Alive => {
                self.stopped_by = Some(StoppedBy::Signal(signal.unwrap_or(Signal::SIGTERM)));
                self.timeout_at = None;
                self.kill_at = Some(kill_at);
                self.others_unasked = signal.is_some();
                match signal {
                    Some(signal) => self.family.signal_program(signal),
                    None => self.family.terminate(),
                }
                self.give_up_turns();
            }
            Some(StoppedBy::Signal(_)) => self.kill_at = self.kill_at.map(|at| at.min(kill_at)),
            _ => {}
        }
    }

    /// Kills all of it.
    pub fn kill(&mut self, now: u64) {
        self.timeout_at = None;
        self.kill_at = None;
        match self.stage {
            Stage::Alive => {
                self.stopped_by = Some(StoppedBy::Kill);
                self.family.kill();
                self.give_up_turns();
            }
            Stage::Emptying { give_up_at: None, .. } => {
                self.stopped_by = Some(StoppedBy::Kill);
                self.kill_survivors(now);
            }
            _ => {}
        }
    }

    pub fn on_time(&mut self, now: u64) {
        if self.timeout_at.is_some_and(|at| at <= now) {
            self.timed_out = true;
            self.stop(None, self.grace_ns, now);
        }
        if self.kill_at.is_some_and(|at| at <= now) {
            self.kill(now);
        }
        if let Stage::Emptying { look_again_at, .. } = self.stage
            && look_again_at <= now
        {
            self.look_whether_gone(now);
        }
    }

    /// Its first process is dead. Until it is reaped, its number and its group's can't belong to anybody else.
    pub fn on_leader_death(&mut self, outbox: &mut Outbox, now: u64) {
        self.on_report(outbox);
        self.give_up_turns(); // what is left of it must not be held while it ends
        self.stdin.close(outbox);
        self.timeout_at = None;
        let others_have_grace = matches!(self.stopped_by, Some(StoppedBy::Signal(_)));
        if others_have_grace && self.others_unasked {
            self.family.terminate(); // it was to end them, and has not
        }
        let ended_by_itself = self.stopped_by.is_none() && self.failure.is_none();
        if ended_by_itself && self.keeps == Survivors::Keep {
            self.survivors = self.family.members().len();
            self.drain();
        } else if !others_have_grace {
            self.kill_at = None;
            self.kill_survivors(now);
        } else {
            self.stage = Stage::Emptying { look_again_at: now, give_up_at: None };
        }
        if let Some((status, usage)) = sys::reap(self.family.leader()) {
            self.end = Some(End { at_ns: now, status, usage });
        }
        self.family.leader_was_reaped();
        self.look_whether_gone(now);
    }

    /// A process of some run has died; if it was this one's last, no need to wait for the next look.
    pub fn look_whether_gone(&mut self, now: u64) {
        let Stage::Emptying { give_up_at, .. } = self.stage else { return };
        if self.family.is_gone() || give_up_at.is_some_and(|at| at <= now) {
            self.kill_at = None;
            self.drain();
            return;
        }
        if give_up_at.is_some() {
            self.family.kill(); // what a survivor forked while it was being looked for
        }
        self.stage = Stage::Emptying { look_again_at: now + LOOK_AGAIN_NS, give_up_at };
    }

    fn kill_survivors(&mut self, now: u64) {
        if self.stopped_by != Some(StoppedBy::Kill) || self.end.is_some() {
            self.survivors = self.family.members().len();
        }
        self.family.kill();
        self.stage = Stage::Emptying { look_again_at: now, give_up_at: Some(now + GIVE_UP_NS) };
    }
}

// What is told about a run that is over.

impl Run {
    /// Removes the cgroup, and gives back the final event, and what a tool or step has printed.
    pub fn finish(self, outbox: &mut Outbox) -> (Event, [Vec<u8>; 2]) {
        self.family.remove_cgroup();
        self.refuse_turns(outbox);
        (self.outcome(), self.captured)
    }

    fn outcome(&self) -> Event {
        if let Some(failure) = &self.failure {
            return Event::Error(failure.clone());
        }
        let Some(end) = self.end else {
            return Event::Error(Failure::new(format!("{:?} ended, but how is unknown", self.program)));
        };
        if self.start.is_none() && self.stopped_by.is_none() {
            return Event::Error(Failure::new(format!("{:?} was killed before it started", self.program)));
        }
        let start = self.start.unwrap_or_default();
        Event::Exit(Box::new(Exit {
            code: end.status.code(),
            signal: end.status.signal().map(signal_name),
            timed_out: self.timed_out,
            stopped_by: self.stopped_by.map(|by| match by {
                StoppedBy::Signal(signal) => signal.as_str().trim_start_matches("SIG"),
                StoppedBy::Kill => "KILL",
            }),
            late_ns: start.late_ns,
            start_ns: self.start.map(|start| start.at_ns),
            elapsed_ns: self.start.map_or(0, |start| end.at_ns.saturating_sub(start.at_ns)),
            user_ns: end.usage.user_ns.saturating_sub(start.shim_usage.user_ns),
            system_ns: end.usage.system_ns.saturating_sub(start.shim_usage.system_ns),
            max_rss_bytes: end.usage.max_rss_bytes,
            survivors: self.survivors,
            counted: self.counters.as_ref().map(Counters::read),
            dropped: self.outputs.iter().map(OutputPipe::dropped).sum(),
        }))
    }
}

/// A signal's name: `"SIGKILL"`; those for programs' own use have none but `"SIGRTMIN+1"`.
pub fn signal_name(number: i32) -> String {
    match Signal::try_from(number) {
        Ok(signal) => signal.as_str().into(),
        Err(_) => format!("SIGRTMIN+{}", number - libc::SIGRTMIN()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signal_has_a_name() {
        assert_eq!(signal_name(9), "SIGKILL");
        assert_eq!(signal_name(libc::SIGRTMIN() + 2), "SIGRTMIN+2");
    }
}
