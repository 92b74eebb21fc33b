//! The event loop: one controller, one thread (and one for slow files), until the end.

mod end;
mod jobs;
mod requests;
mod runs;
mod serve;
mod steps;

pub use end::{End, SessionError};
pub use serve::serve;

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read};

use nix::sys::signalfd::SignalFd;

use crate::clock::{self, MILLISECOND, SECOND};
use crate::facts::FactsRequest;
use crate::files::{FileThread, Job};
use crate::outbox::Outbox;
use crate::poller::{Interest, Part, Poller, Token};
use crate::processes::{AgentCgroup, Guard};
use crate::protocol::{Decoder, Event};
use crate::run::Run;
use crate::sample::Sampler;
use crate::stream::Stream;

use serve::Lease;
use steps::StepRequests;

/// How often to look whether the host has opened its end of a virtio-serial port.
const CONNECT_NS: u64 = 100 * MILLISECOND;
/// How long a controller may take to read the last events after a `shutdown`.
const FAREWELL_NS: u64 = 5 * SECOND;

#[derive(Debug, Clone, Copy)]
struct FileJob {
    id: u64,
    is_read: bool,
    cancelled: bool,
}

pub struct Session {
    stream: Stream,
    decoder: Decoder,
    outbox: Outbox,
    poller: Poller,
    signals: SignalFd,
    files: Option<FileThread>,
    /// Jobs for the file thread, of which one at a time is given to it.
    jobs: VecDeque<Job>,
    /// The request that the file thread is at.
    file_job: Option<FileJob>,
    steps: StepRequests,
    cgroup: Option<AgentCgroup>,
    guard: Option<Guard>,
    lease: Option<Lease>,
    runs: BTreeMap<u64, Run>,
    last_serial: u64,
    samplers: BTreeMap<u64, Sampler>,
    facts: BTreeMap<u64, FactsRequest>,
    greeted: bool,
    /// The `shutdown` request, and when to go even if the controller doesn't read.
    shutdown: Option<(u64, u64)>,
    shutdown_answered: bool,
    /// What of the requests is waited for; nothing until there is a controller.
    requests_watched: Option<Interest>,
    events_watched: bool,
    /// When to look again whether anybody is at the other end of the port.
    connect_at: Option<u64>,
}

impl Session {
    /// Serves until the end.
    fn run(&mut self) -> Result<End, SessionError> {
        if self.stream.waits_for_peer() {
            self.connect_at = Some(clock::monotonic_ns() + CONNECT_NS);
        }
        loop {
            // What goes out makes room, and that lets others go on: this must come right before waiting.
            if let Some(end) = self.flush().or_else(|| self.go_on()) {
                return Ok(end);
            }
            self.prepare_to_wait()?;
            for token in self.poller.wait()? {
                if let Some(end) = self.on_ready(token)? {
                    return Ok(end);
                }
            }
        }
    }

    fn on_ready(&mut self, token: Token) -> Result<Option<End>, SessionError> {
        match token.part {
            Part::Requests => return Ok(self.take_requests()),
            Part::Signals => return Ok(self.on_signal()),
            Part::Bulk => self.on_bulk()?,
            Part::Files => self.on_files(),
            Part::Steps => self.on_steps(),
            Part::Report => self.with_run(token.serial, |run, _, outbox| run.on_report(outbox)),
            Part::Stdin => self.with_run(token.serial, |run, poller, outbox| run.on_stdin(poller, outbox)),
            // The outbox is flushed, and deadlines are looked at, in every turn of the loop.
            Part::Events | Part::Deadline | Part::Stdout | Part::Stderr => {}
        }
        Ok(None)
    }

    fn with_run(&mut self, serial: u64, act: impl FnOnce(&mut Run, &Poller, &mut Outbox)) {
        // It may have ended in this very turn of the loop.
        if let Some(run) = self.runs.get_mut(&serial) {
            act(run, &self.poller, &mut self.outbox);
        }
    }

    /// Decides what to wait for: who may go on depends on how much waits to go out.
    fn prepare_to_wait(&mut self) -> Result<(), SessionError> {
        self.poller.set_bulk(self.outbox.has_room())?;
        if self.connect_at.is_none() {
            self.watch_stream()?;
        }
        let deadline = self.deadline();
        Ok(self.poller.set_deadline(deadline)?)
    }

    fn watch_stream(&mut self) -> Result<(), SessionError> {
        // That the controller has gone must be seen even while no more requests are taken in.
        let hold = self.outbox.is_overfull() || self.has_many_writes();
        let interest = if hold { Interest::HangUp } else { Interest::Read };
        let (input, token) = (&self.stream.input, Token::session(Part::Requests));
        match self.requests_watched {
            None => self.poller.watch(input, token, interest)?,
            Some(watched) if watched != interest => self.poller.change(input, token, interest)?,
            Some(_) => {}
        }
        self.requests_watched = Some(interest);

        // Only while something waits: a stream that has room would be reported without end.
        let (output, token) = (&self.stream.output, Token::session(Part::Events));
        let waits = !self.outbox.is_empty();
        match (self.events_watched, waits) {
            (false, true) => self.poller.watch(output, token, Interest::Write)?,
            (true, false) => self.poller.unwatch(output),
            _ => {}
        }
        self.events_watched = waits;
        Ok(())
    }

    fn deadline(&self) -> Option<u64> {
        let runs = self.runs.values().filter_map(Run::deadline);
        // A sample for which there is no room is taken when there is.
        let samples = self.samplers.values().map(Sampler::due_at).filter(|_| self.outbox.has_room());
        let shutdown = self.shutdown.map(|(_, at)| at);
        let lease = self.lease.as_ref().map(Lease::ends_at);
        runs.chain(samples).chain(shutdown).chain(self.connect_at).chain(lease).min()
    }

    /// Does what is due, and what has become possible.
    fn go_on(&mut self) -> Option<End> {
        let now = clock::monotonic_ns();
        self.try_to_connect(now);
        for run in self.runs.values_mut() {
            run.on_time(now);
            run.on_turn(now, &mut self.outbox);
        }
        self.take_samples();
        self.submit_job();
        self.begin_steps();
        self.finish_runs();
        self.advance_shutdown(now).or_else(|| self.look_at_lease(now))
    }

    /// The end where the controller was silent for too long. While its requests wait for a slow disk, that isn't known.
    fn look_at_lease(&mut self, now: u64) -> Option<End> {
        if self.has_many_writes() {
            self.hear();
        }
        self.lease.as_ref().filter(|lease| lease.ends_at() <= now).map(|lease| End::Silence(lease.seconds()))
    }

    fn hear(&mut self) {
        if let Some(lease) = &mut self.lease {
            lease.renew(self.guard.as_mut());
        }
    }

    /// Answers `shutdown` when all has ended, or when it takes too long, and goes when the answer is sent.
    fn advance_shutdown(&mut self, now: u64) -> Option<End> {
        let (id, give_up_at) = self.shutdown?;
        let idle = self.runs.is_empty() && self.file_job.is_none() && self.steps.is_idle();
        if !self.shutdown_answered && (idle || give_up_at <= now) {
            self.outbox.push(id, &Event::done(), &[]);
            self.shutdown_answered = true;
            self.shutdown = Some((id, now + FAREWELL_NS));
        } else if self.shutdown_answered && (self.outbox.is_empty() || give_up_at <= now) {
            return Some(End::Shutdown);
        }
        None
    }

    fn try_to_connect(&mut self, now: u64) {
        if self.connect_at.is_some_and(|at| at <= now) {
            self.connect_at = self.stream.waits_for_peer().then_some(now + CONNECT_NS);
        }
    }

    /// Sends what the controller takes; the end where there is no controller.
    fn flush(&mut self) -> Option<End> {
        if self.connect_at.is_some() {
            return None;
        }
        let waited = self.outbox.len();
        match self.outbox.flush(&mut self.stream.output) {
            Ok(()) => {
                // Whoever reads while its requests wait can't be heard, and lives.
                if self.requests_watched == Some(Interest::HangUp) && self.outbox.len() < waited {
                    self.hear();
                }
                None
            }
            Err(_) => Some(End::Closed),
        }
    }

    fn take_requests(&mut self) -> Option<End> {
        if self.requests_watched == Some(Interest::HangUp) {
            return Some(End::Closed);
        }
        let mut bytes = [0; 65_536];
        match self.stream.input.read(&mut bytes) {
            Ok(0) => Some(End::Closed),
            Ok(count) => {
                self.hear();
                self.decoder.push(&bytes[..count]);
                self.serve_requests()
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => None,
                _ => Some(End::Closed),
            },
        }
    }
}
