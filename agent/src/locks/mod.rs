//! `storlab-agent locks`: waits for the kernel's locks, counted in the kernel by who waits, told as JSON lines.
//!
//! | module | is |
//! | --- | --- |
//! | `options` | what is looked at |
//! | `functions` | which of the kernel's functions lock |
//! | `programs` | the eBPF programs (`agent/bpf/locks.bpf.c`), loaded and attached |
//! | `counts` | what they leave in their maps, by function |
//! | `output` | the lines |

mod counts;
mod functions;
mod options;
mod output;
mod programs;

use std::ffi::OsString;
use std::io::{self, BufWriter, Stdout, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::Instant;

use aya::maps::MapError;
use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;
use serde::Serialize;

use crate::symbols::{NoSymbols, Symbols};
use crate::trace::{ending_signals, wait};
use crate::{clock, sys};
use options::LockOptions;
use programs::Attached;

/// How `locks` is called.
pub const USAGE: &str =
    "usage: storlab-agent locks [--check] [--cgroup ID] [--interval SECONDS] [--for SECONDS]";

#[derive(Debug, thiserror::Error)]
enum LockError {
    #[error("{0}\n{USAGE}")]
    Option(#[from] options::OptionError),
    #[error(transparent)]
    Refused(#[from] programs::Refused),
    #[error(transparent)]
    Symbols(#[from] NoSymbols),
    #[error("the counts can't be read: {0}")]
    Map(#[from] MapError),
    #[error("{0}")]
    System(#[from] io::Error),
}

impl From<Errno> for LockError {
    fn from(errno: Errno) -> Self {
        Self::System(errno.into())
    }
}

/// Does what the arguments after `locks` say, and gives the exit status.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    match watch(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        // Nobody reads any more: there is nothing left to do, and nothing wrong.
        Err(LockError::System(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("storlab-agent: {error}");
            ExitCode::from(if matches!(error, LockError::Option(_)) { 2 } else { 1 })
        }
    }
}

fn watch(arguments: impl IntoIterator<Item = OsString>) -> Result<(), LockError> {
    let options = options::parse(arguments)?;
    prctl::set_pdeathsig(Signal::SIGTERM)?;
    let signals = ending_signals()?;
    let symbols = Symbols::of_kernel()?;
    let locking = functions::that_lock(&symbols);
    let attached = programs::attach(&options, &locking)?;
    let left_out = locking.len().saturating_sub(functions::MAX_RANGES);
    sys::give_memory_back(); // the kernel's types were most of it
    if options.check {
        return Ok(());
    }
    Watcher { options, symbols, attached, left_out, out: BufWriter::new(io::stdout()) }.follow(&signals)
}

struct Watcher {
    options: LockOptions,
    symbols: Symbols,
    attached: Attached,
    /// Ranges of functions that lock for which there was no room.
    left_out: usize,
    out: BufWriter<Stdout>,
}

impl Watcher {
    /// Tells counts until it is time to end.
    fn follow(&mut self, signals: &SignalFd) -> Result<(), LockError> {
        let now = (clock::monotonic_ns(), clock::realtime_ns());
        let left_out = self.left_out;
        self.put(&output::Started { left_out, monotonic_ns: now.0, realtime_ns: now.1 })?;
        let begun = Instant::now();
        // A time that the clock can't reach never comes.
        let end = self.options.period.and_then(|period| begun.checked_add(period));
        let mut tick = self.options.interval.and_then(|interval| begun.checked_add(interval));
        loop {
            let over = wait(signals.as_fd(), io::stdout().as_fd(), [end, tick].into_iter().flatten().min())?;
            let now = Instant::now();
            if over || end.is_some_and(|end| end <= now) {
                break;
            }
            if let (Some(due), Some(interval)) = (tick, self.options.interval)
                && due <= now
            {
                self.tell_counts(false)?;
                // What was missed while the machine stood still is not made up for.
                let after = Instant::now();
                tick = due.checked_add(interval).filter(|next| *next > after).or(after.checked_add(interval));
            }
        }
        self.attached.detach();
        self.tell_counts(true)
    }

    fn tell_counts(&mut self, last: bool) -> Result<(), LockError> {
        self.symbols.refresh()?;
        let counts = counts::read(&self.attached.ebpf, &self.symbols)?;
        let line = output::CountsLine::new(&counts, self.attached.missed(), last);
        self.put(&line)
    }

    fn put(&mut self, line: &impl Serialize) -> Result<(), LockError> {
        serde_json::to_writer(&mut self.out, line).map_err(io::Error::from)?;
        self.out.write_all(b"\n")?;
        Ok(self.out.flush()?)
    }
}
