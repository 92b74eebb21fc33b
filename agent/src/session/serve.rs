//! From the command line to a session, and from its end to the program's.

use super::{End, Session, SessionError};
use crate::cli::ServeOptions;
use crate::clock::SECOND;
use crate::outbox::Outbox;
use crate::poller::{Interest, Part, Poller, Token};
use crate::processes::{AgentCgroup, Guard, kill_descendants};
use crate::protocol::{Decoder, Event, PREFACE, PROTOCOL};
use crate::stream::Stream;
use crate::{clock, facts, sys};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::time::Duration;

/// Obeys a controller until the end; then kills and removes all that was made for it.
pub fn serve(options: &ServeOptions) -> Result<End, SessionError> {
    // Where a parent ignored it, the kernel would reap the runs itself, and nobody would learn how they ended.
    sys::default_action(Signal::SIGCHLD);
    // Re-executed through /proc/self/exe, it would be called "exe".
    let _ = prctl::set_name(c"storlab-agent");
    // What loses its parent is given to the agent, where it can be found.
    prctl::set_child_subreaper(true)?;
    let signals = take_signals()?;
    let stream = match &options.port {
        Some(path) => Stream::port(path)?,
        None => Stream::standard()?,
    };
    let name = options.cgroup.clone().unwrap_or_else(|| format!("storlab-agent-{}", std::process::id()));
    let cgroup = AgentCgroup::create(&name);
    // Process 1 of a guest can't be killed but with the guest. Without a guard, `storlab clean` does it.
    let guard =
        cgroup.as_ref().filter(|_| options.port.is_none()).and_then(|cgroup| Guard::start(cgroup).ok());
    let mut session = Session::new(stream, signals, cgroup, guard)?;
    let end = session.run();
    session.tear_down();
    match &end {
        Ok(End::Broken(reason) | End::Refused(reason)) => eprintln!("storlab-agent: {reason}"),
        Ok(End::Silence(seconds)) => eprintln!("storlab-agent: its controller was silent for {seconds} s"),
        _ => {}
    }
    end
}

/// Signals are read like any other input. SIGPIPE is ignored by Rust's runtime already.
fn take_signals() -> nix::Result<SignalFd> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        signals.add(signal);
    }
    signals.thread_block()?;
    SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
}

impl Session {
    fn new(
        stream: Stream,
        signals: SignalFd,
        cgroup: Option<AgentCgroup>,
        guard: Option<Guard>,
    ) -> Result<Self, SessionError> {
        let poller = Poller::new()?;
        poller.watch(&signals, Token::session(Part::Signals), Interest::Read)?;
        let mut outbox = Outbox::default();
        outbox.push_raw(PREFACE);
        outbox.push(0, &hello(None), &[]);
        Ok(Self {
            stream,
            decoder: Decoder::default(),
            outbox,
            poller,
            signals,
            files: None,
            jobs: VecDeque::new(),
            file_job: None,
            steps: Default::default(),
            cgroup,
            guard,
            lease: None,
            runs: BTreeMap::new(),
            last_serial: 0,
            samplers: BTreeMap::new(),
            facts: BTreeMap::new(),
            greeted: false,
            shutdown: None,
            shutdown_answered: false,
            requests_watched: None,
            events_watched: false,
            connect_at: None,
        })
    }

    /// Kills everything and removes the cgroups. What waits to go out gets a last chance.
    fn tear_down(&mut self) {
        let now = crate::clock::monotonic_ns();
        for run in self.runs.values_mut() {
            run.kill(now);
        }
        if self.connect_at.is_none() {
            let _ = self.outbox.flush(&mut self.stream.output);
        }
        kill_descendants();
        if let Some(cgroup) = &self.cgroup
            && !cgroup.remove(Duration::from_secs(1))
        {
            // What dies more slowly is left to another guard: the first was among the descendants.
            let _ = Guard::start(cgroup);
        }
    }
}

pub(super) fn hello(lease_ns: Option<u64>) -> Event {
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    Event::Hello {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION"),
        pid: std::process::id(),
        boot_id: boot_id.trim().to_owned(),
        hostname: facts::hostname(),
        lease_ns,
    }
}

// How long an agent lives that hears nothing: a link that was cut closes no stream for minutes or hours.

/// How often the guard is told, at most.
const TELL_NS: u64 = SECOND;

/// What a controller asked for in its `hello`.
#[derive(Debug)]
pub struct Lease {
    length: u64,
    heard_at: u64,
    told_at: u64,
}

impl Lease {
    /// Runs from now on, for so many nanoseconds each time.
    pub fn new(length: u64) -> Self {
        Self { length, heard_at: clock::monotonic_ns(), told_at: 0 }
    }

    /// When it ends, on `CLOCK_MONOTONIC`.
    pub fn ends_at(&self) -> u64 {
        self.heard_at.saturating_add(self.length)
    }

    /// The controller lives. The guard learns of it, too: it ends an agent that stands still itself.
    pub fn renew(&mut self, guard: Option<&mut Guard>) {
        self.heard_at = clock::monotonic_ns();
        if self.heard_at.saturating_sub(self.told_at) >= TELL_NS {
            self.told_at = self.heard_at;
            if let Some(guard) = guard {
                guard.expect_again_within(self.length);
            }
        }
    }

    pub fn seconds(&self) -> u64 {
        self.length / SECOND
    }
}
