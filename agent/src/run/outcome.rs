//! What is told about a run that is over.

use std::os::unix::process::ExitStatusExt;

use nix::sys::signal::Signal;

use super::output::OutputPipe;
use super::{Run, StoppedBy};
use crate::outbox::Outbox;
use crate::perf::Counters;
use crate::protocol::{Event, Exit, Failure};

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
