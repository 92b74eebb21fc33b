//! `storlab-agent trace`: block I/O seen from the kernel, counted in the kernel, told as JSON lines.
//!
//! | module | is |
//! | --- | --- |
//! | `options` | what is looked at |
//! | `disks` | disks by name and number |
//! | `btf`, `tracefs` | the kernel's types; its descriptions of tracepoints |
//! | `filters`, `programs` | the constants of the eBPF programs (`agent/bpf/`); these, loaded and attached |
//! | `counters`, `events` | what the programs leave in their maps |
//! | `names`, `output` | the lines |

pub(crate) mod btf;
pub(crate) mod counters;
mod disks;
mod events;
mod filters;
mod names;
pub(crate) mod options;
mod output;
pub(crate) mod programs;
pub(crate) mod tracefs;

use std::ffi::OsString;
use std::io::{self, BufWriter, Stdout, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use aya::maps::{MapData, MapError, RingBuf};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::SignalFd;

use crate::{clock, sys};
use disks::Names;
use options::TraceOptions;
use programs::Attached;

/// How `trace` is called.
pub const USAGE: &str = "usage: storlab-agent trace [--disk NAME]... [--op NAME]... [--comm NAME]... [--length BYTES]... [--alignment BYTES]...
                           [--cgroup ID] [--by-comm] [--no-latency] [--events] [--interval SECONDS] [--for SECONDS] [--hook btf|tracepoint]";

const SYS: &str = "/sys";
/// Events are read so often at least: the kernel wakes nobody for each of them.
const EVENTS_EVERY: Duration = Duration::from_millis(50);

#[derive(Debug, thiserror::Error)]
enum TraceError {
    #[error("{0}\n{USAGE}")]
    Option(#[from] options::OptionError),
    #[error(transparent)]
    NoDisk(#[from] disks::NoDisk),
    #[error(transparent)]
    Refused(#[from] programs::Refused),
    #[error("the counts can't be read: {0}")]
    Map(#[from] MapError),
    #[error("{0}")]
    System(#[from] io::Error),
}

impl From<Errno> for TraceError {
    fn from(errno: Errno) -> Self {
        Self::System(errno.into())
    }
}

/// Does what the arguments after `trace` say, and gives the exit status.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    match trace(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        // Nobody reads any more: there is nothing left to do, and nothing wrong.
        Err(TraceError::System(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("storlab-agent: {error}");
            let theirs = matches!(error, TraceError::Option(_) | TraceError::NoDisk(_));
            ExitCode::from(if theirs { 2 } else { 1 })
        }
    }
}

fn trace(arguments: impl IntoIterator<Item = OsString>) -> Result<(), TraceError> {
    let options = options::parse(arguments)?;
    programs::allow_files()?;
    let extents =
        options.disks.iter().map(|name| disks::find(Path::new(SYS), name)).collect::<Result<Vec<_>, _>>()?;
    prctl::set_pdeathsig(Signal::SIGTERM)?;
    let signals = ending_signals()?;
    let attached = programs::attach(&options, &extents)?;
    sys::give_memory_back(); // the kernel's types were most of it
    let mut tracer =
        Tracer { options, attached, disks: Names::new(Path::new(SYS)), out: BufWriter::new(io::stdout()) };
    tracer.tell_start()?;
    tracer.follow(&signals)
}

/// What ends a program that watches, as a descriptor.
pub(crate) fn ending_signals() -> Result<SignalFd, Errno> {
    let mut ending = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        ending.add(signal);
    }
    ending.thread_block()?;
    SignalFd::new(&ending)
}

struct Tracer {
    options: TraceOptions,
    attached: Attached,
    disks: Names,
    out: BufWriter<Stdout>,
}

impl Tracer {
    fn tell_start(&mut self) -> io::Result<()> {
        let line = output::Started {
            hook: self.attached.hook.name(),
            reason: self.attached.reason.as_deref(),
            disks: &self.options.disks,
            latency: self.options.latency,
            without: &self.attached.without,
            monotonic_ns: clock::monotonic_ns(),
            realtime_ns: clock::realtime_ns(),
        };
        serde_json::to_writer(&mut self.out, &line)?;
        self.out.write_all(b"\n")?;
        self.out.flush()
    }

    /// Tells counts and events until it is time to end.
    fn follow(&mut self, signals: &SignalFd) -> Result<(), TraceError> {
        let mut ring = match self.attached.ebpf.take_map("EVENTS") {
            Some(map) if self.options.events => Some(RingBuf::try_from(map)?),
            _ => None,
        };
        let begun = Instant::now();
        // A time that the clock can't reach never comes.
        let end = self.options.period.and_then(|period| begun.checked_add(period));
        let mut tick = self.options.interval.and_then(|interval| begun.checked_add(interval));
        loop {
            let events = ring.as_ref().map(|_| Instant::now() + EVENTS_EVERY);
            let next = [end, tick, events].into_iter().flatten().min();
            let over = wait(signals.as_fd(), io::stdout().as_fd(), next)?;
            if let Some(ring) = &mut ring {
                self.tell_events(ring)?;
            }
            let now = Instant::now();
            if over || end.is_some_and(|end| end <= now) {
                break;
            }
            while let (Some(due), Some(interval)) = (tick, self.options.interval)
                && due <= now
            {
                tick = due.checked_add(interval);
                if tick.is_none_or(|next| next > now) {
                    self.tell_counts(false)?;
                }
            }
        }
        self.attached.detach();
        if let Some(ring) = &mut ring {
            self.tell_events(ring)?;
        }
        self.tell_counts(true)
    }

    fn tell_events(&mut self, ring: &mut RingBuf<MapData>) -> io::Result<()> {
        if events::drain(ring, &mut self.disks, &mut self.out)? > 0 {
            self.out.flush()?;
        }
        Ok(())
    }

    fn tell_counts(&mut self, last: bool) -> Result<(), TraceError> {
        let counts = counters::read(&self.attached.ebpf)?;
        let in_flight =
            (last && self.options.latency).then(|| counters::in_flight(&self.attached.ebpf)).transpose()?;
        let line = output::CountsLine::new(&counts, &mut self.disks, self.attached.missed(), last, in_flight);
        serde_json::to_writer(&mut self.out, &line).map_err(io::Error::from)?;
        self.out.write_all(b"\n")?;
        self.out.flush()?;
        Ok(())
    }
}

/// Waits for a signal, for the reader's leaving, or until then; true where it is over.
pub(crate) fn wait(signals: BorrowedFd, out: BorrowedFd, until: Option<Instant>) -> Result<bool, Errno> {
    let mut watched = [PollFd::new(signals, PollFlags::POLLIN), PollFd::new(out, PollFlags::empty())];
    let timeout = until.map_or(PollTimeout::NONE, |until| {
        let left = until.saturating_duration_since(Instant::now()) + Duration::from_micros(999);
        PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
    });
    match poll(&mut watched, timeout) {
        Ok(0) | Err(Errno::EINTR) => Ok(false),
        Ok(_) => {
            let [signal, reader] = watched.map(|fd| fd.revents().unwrap_or(PollFlags::empty()));
            Ok(signal.contains(PollFlags::POLLIN)
                || reader.intersects(PollFlags::POLLERR | PollFlags::POLLHUP))
        }
        Err(errno) => Err(errno),
    }
}
