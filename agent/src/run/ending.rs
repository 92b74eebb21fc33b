//! How a run is ended, and how it ends.

use nix::sys::signal::Signal;

use super::{End, Run, Stage, StoppedBy};
use crate::clock::{MILLISECOND, SECOND};
use crate::outbox::Outbox;
use crate::protocol::Survivors;
use crate::sys;

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
