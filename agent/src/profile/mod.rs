//! `storlab-agent profile`: what the CPUs do at the ticks of a clock, as stacks, told as JSON lines.
//!
//! | module | is |
//! | --- | --- |
//! | `options` | how often, and for how long |
//! | `programs` | the eBPF program (`agent/bpf/profile.bpf.c`), loaded and attached to every CPU's clock |
//! | `stacks` | the stacks that were seen, by number |
//! | `mapped` | which file an address of a program is in |
//! | `elf` | the functions of such a file |
//!
//! Addresses get their names when all is over: reading symbols takes CPU, which would be seen.

mod elf;
mod mapped;
mod options;
mod programs;
mod stacks;

use std::ffi::OsString;
use std::io::{self, BufWriter, Stdout, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;
use serde::Serialize;

use crate::clock::{monotonic_ns, realtime_ns};
use crate::perf::online_cpus;
use crate::trace::{ending_signals, wait};
use options::ProfileOptions;
use programs::Attached;
use stacks::Stacks;

/// How `profile` is called.
pub const USAGE: &str =
    "usage: storlab-agent profile [--frequency HERTZ] [--interval SECONDS] [--for SECONDS] [--check]";

const ONLINE: &str = "/sys/devices/system/cpu/online";

#[derive(Debug, thiserror::Error)]
enum ProfileError {
    #[error("{0}\n{USAGE}")]
    Option(#[from] options::OptionError),
    #[error("CPUs can't be sampled: {0}")]
    Refused(String),
    #[error("{0}")]
    System(#[from] io::Error),
}

impl From<Errno> for ProfileError {
    fn from(errno: Errno) -> Self {
        Self::System(errno.into())
    }
}

/// The first line.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename = "started")]
struct Started {
    /// The event whose ticks these are.
    clock: &'static str,
    /// Of samples a second on each CPU.
    frequency: u64,
    cpus: usize,
    monotonic_ns: u64,
    realtime_ns: u64,
}

/// What was seen since the line before.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename = "samples")]
struct Samples {
    monotonic_ns: u64,
    /// Samples for which there was no room.
    lost: u64,
    /// A stack's number, and how often it was seen.
    counts: Vec<(usize, u64)>,
}

/// The last line.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename = "end")]
struct End<'a> {
    monotonic_ns: u64,
    /// Why functions of the kernel have no names.
    nameless: Option<&'a str>,
}

/// Does what the arguments after `profile` say, and gives the exit status.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    match watch(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(ProfileError::System(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("storlab-agent: {error}");
            ExitCode::from(if matches!(error, ProfileError::Option(_)) { 2 } else { 1 })
        }
    }
}

fn watch(arguments: impl IntoIterator<Item = OsString>) -> Result<(), ProfileError> {
    let options = options::parse(arguments)?;
    prctl::set_pdeathsig(Signal::SIGTERM)?;
    let signals = ending_signals()?;
    let cpus = online_cpus(&std::fs::read_to_string(ONLINE)?);
    let attached = Attached::new(&cpus, options.frequency).map_err(ProfileError::Refused)?;
    if options.check {
        return Ok(());
    }
    let mut out = BufWriter::new(io::stdout());
    let started = Started {
        clock: "cpu-clock",
        frequency: options.frequency,
        cpus: cpus.len(),
        monotonic_ns: monotonic_ns(),
        realtime_ns: realtime_ns(),
    };
    put(&mut out, &started)?;
    out.flush()?;
    let mut profiler = Profiler { options, attached, stacks: Stacks::default(), lost: 0, out };
    profiler.follow(&signals)?;
    profiler.tell_stacks()
}

struct Profiler {
    options: ProfileOptions,
    attached: Attached,
    stacks: Stacks,
    /// Of those that were told.
    lost: u64,
    out: BufWriter<Stdout>,
}

impl Profiler {
    fn follow(&mut self, signals: &SignalFd) -> Result<(), ProfileError> {
        let begun = Instant::now();
        let end = self.options.period.and_then(|period| begun.checked_add(period));
        let mut tick = begun.checked_add(self.options.interval);
        loop {
            let over = wait(signals.as_fd(), io::stdout().as_fd(), [end, tick].into_iter().flatten().min())?;
            let now = Instant::now();
            if over || end.is_some_and(|end| end <= now) {
                self.attached.stop();
                return self.take();
            }
            if tick.is_some_and(|due| due <= now) {
                self.take()?;
                tick = now.checked_add(self.options.interval);
            }
        }
    }

    /// Takes what the program has left, and says how much of what that is.
    fn take(&mut self) -> Result<(), ProfileError> {
        let now = monotonic_ns();
        self.attached.each(|bytes| self.stacks.add(bytes));
        let lost = self.attached.lost() + self.stacks.without_room();
        let line =
            Samples { monotonic_ns: now, lost: lost.saturating_sub(self.lost), counts: self.stacks.since() };
        self.lost = lost;
        put(&mut self.out, &line)?;
        self.out.flush()?;
        Ok(())
    }

    fn tell_stacks(&mut self) -> Result<(), ProfileError> {
        let (rows, nameless) = self.stacks.named();
        for row in rows {
            put(&mut self.out, &row)?;
        }
        put(&mut self.out, &End { monotonic_ns: monotonic_ns(), nameless: nameless.as_deref() })?;
        self.out.flush()?;
        Ok(())
    }
}

fn put(out: &mut impl Write, line: &impl Serialize) -> Result<(), ProfileError> {
    serde_json::to_writer(&mut *out, line).map_err(io::Error::from)?;
    out.write_all(b"\n")?;
    Ok(())
}
