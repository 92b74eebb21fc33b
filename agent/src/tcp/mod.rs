//! `storlab-agent tcp`: what TCP connections do, by the kernel's own counts, told as JSON lines.
//!
//! | module | is |
//! | --- | --- |
//! | `options` | what is looked at |
//! | `diag` | connections and their `tcp_info`, asked of the kernel |
//! | `counters` | counters of the network namespace and of disks |
//! | `programs` | eBPF programs (`agent/bpf/tcp.bpf.c`) that catch what opens and closes in between |
//! | `acks` | eBPF programs (`agent/bpf/acks.bpf.c`) that count bytes of pure ACKs and gaps between them |
//! | `output` | the lines |

mod acks;
mod counters;
mod diag;
mod options;
mod output;
mod programs;

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, BufWriter, Stdout, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;
use serde::Serialize;

use crate::trace::{ending_signals, wait};
use crate::{clock, sys};
use acks::Acks;
use diag::{Connection, Diag};
use options::TcpOptions;
use programs::Attached;
pub(crate) use programs::taken;

/// How `tcp` is called.
pub const USAGE: &str = "usage: storlab-agent tcp [--endpoint ADDRESS:PORT]... [--disk NAME]... [--interval SECONDS] [--for SECONDS]
                         [--distributions] [--no-events]";

const SYS: &str = "/sys";

#[derive(Debug, thiserror::Error)]
enum TcpError {
    #[error("{0}\n{USAGE}")]
    Option(#[from] options::OptionError),
    #[error(
        "the kernel can't be asked for TCP connections: {0} (it takes sock_diag, the module tcp_diag of some kernels)"
    )]
    Diag(io::Error),
    #[error("{0}")]
    System(#[from] io::Error),
}

impl From<Errno> for TcpError {
    fn from(errno: Errno) -> Self {
        Self::System(errno.into())
    }
}

/// Does what the arguments after `tcp` say, and gives the exit status.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    match watch(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        // Nobody reads any more: there is nothing left to do, and nothing wrong.
        Err(TcpError::System(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("storlab-agent: {error}");
            ExitCode::from(if matches!(error, TcpError::Option(_)) { 2 } else { 1 })
        }
    }
}

fn watch(arguments: impl IntoIterator<Item = OsString>) -> Result<(), TcpError> {
    let options = options::parse(arguments)?;
    prctl::set_pdeathsig(Signal::SIGTERM)?;
    let signals = ending_signals()?;
    let diag = Diag::open().map_err(TcpError::Diag)?;
    let (attached, acks) = attach(&options);
    sys::give_memory_back(); // the kernel's types were most of it
    let reasons = [attached.as_ref().err().cloned(), acks.as_ref().err().cloned()];
    let (attached, acks) = (attached.ok(), acks.ok());
    let (known, out) = (HashMap::new(), BufWriter::new(io::stdout()));
    let counters = counters::Files::open();
    let mut watcher = Watcher { options, diag, counters, attached, acks, looked: None, known, out };
    watcher.tell_start(&reasons)?;
    watcher.follow(&signals)
}

/// The programs that are wanted; of the others, and where they can't be, a sentence on why they are not.
fn attach(options: &TcpOptions) -> (Result<Attached, String>, Result<Acks, String>) {
    let unwanted = || "it was not asked for".to_owned();
    let found = if options.events || options.distributions { programs::types() } else { Err(unwanted()) };
    let types = |wanted| if wanted { found.as_ref().map_err(String::clone) } else { Err(unwanted()) };
    (
        types(options.events).and_then(Attached::new),
        types(options.distributions).and_then(|types| Acks::new(types, &options.endpoints)),
    )
}

struct Watcher {
    options: TcpOptions,
    diag: Diag,
    counters: counters::Files,
    attached: Option<Attached>,
    acks: Option<Acks>,
    /// How many connections had been established when all were looked for; none: nobody can tell.
    looked: Option<u64>,
    known: HashMap<u64, Connection>,
    out: BufWriter<Stdout>,
}

impl Watcher {
    fn tell_start(&mut self, [events, distributions]: &[Option<String>; 2]) -> Result<(), TcpError> {
        let endpoints: Vec<_> = self.options.endpoints.iter().map(ToString::to_string).collect();
        let line = output::Started {
            interval_ns: nanoseconds(self.options.interval),
            endpoints: &endpoints,
            disks: &self.options.disks,
            counters: &counters::NAMES,
            events: self.attached.is_some(),
            reason: events.as_deref(),
            distributions: self.acks.is_some(),
            no_distributions: distributions.as_deref(),
            monotonic_ns: clock::monotonic_ns(),
            realtime_ns: clock::realtime_ns(),
        };
        // It comes out with the first sample: whoever waits for it begins a load, all of which is to be seen.
        put(&mut self.out, &line)?;
        self.sample(false)
    }

    fn follow(&mut self, signals: &SignalFd) -> Result<(), TcpError> {
        let begun = Instant::now();
        // A time that the clock can't reach never comes.
        let end = self.options.period.and_then(|period| begun.checked_add(period));
        let mut tick = begun.checked_add(self.options.interval);
        loop {
            let over = wait(signals.as_fd(), io::stdout().as_fd(), [end, tick].into_iter().flatten().min())?;
            let now = Instant::now();
            if over || end.is_some_and(|end| end <= now) {
                return self.sample(true);
            }
            if tick.is_some_and(|due| due <= now) {
                self.sample(false)?;
                // What was missed while the machine stood still is not made up for.
                let next = tick.and_then(|due| due.checked_add(self.options.interval));
                let after = Instant::now();
                tick = next.filter(|next| *next > after).or_else(|| after.checked_add(self.options.interval));
            }
        }
    }

    fn sample(&mut self, last: bool) -> Result<(), TcpError> {
        let begun = clock::monotonic_ns();
        let now = self.connections(last)?;
        self.tell_closed()?; // those that were there a moment ago, too
        let counters = self.counters.read();
        let disks = &self.options.disks;
        let disks = disks
            .iter()
            .filter_map(|name| Some((name.clone(), counters::disk(Path::new(SYS), name)?)))
            .collect();
        let now: HashMap<u64, Connection> = now.into_iter().map(|each| (each.cookie, each)).collect();
        let mut changed: Vec<_> =
            now.values().filter(|each| self.known.get(&each.cookie) != Some(each)).map(output::row).collect();
        changed.sort_unstable_by_key(|row| row.0);
        let mut gone: Vec<_> =
            self.known.keys().filter(|cookie| !now.contains_key(cookie)).copied().collect();
        gone.sort_unstable();
        let took_ns = clock::monotonic_ns().saturating_sub(begun);
        let lost = self.attached.as_ref().map_or(0, Attached::lost);
        let acks = self.acks.as_mut().map(Acks::since).unwrap_or_default();
        let (monotonic_ns, connections) = (begun, changed);
        let line =
            output::Sample { last, monotonic_ns, took_ns, connections, gone, counters, lost, disks, acks };
        put(&mut self.out, &line)?;
        self.out.flush()?;
        self.known = now;
        Ok(())
    }
}

impl Watcher {
    /// All that are wanted. To look for them takes a walk through the kernel's whole table, so it is done only if some
    /// were established since; those that are known are asked for one by one.
    fn connections(&mut self, last: bool) -> Result<Vec<Connection>, TcpError> {
        let opened = self.attached.as_ref().map(Attached::opened);
        if !last && opened.is_some() && opened == self.looked {
            return self.diag.again(self.known.values()).map_err(TcpError::Diag);
        }
        self.looked = opened;
        self.diag.connections(&self.options.endpoints).map_err(TcpError::Diag)
    }

    fn tell_closed(&mut self) -> Result<(), TcpError> {
        let Some(attached) = &mut self.attached else { return Ok(()) };
        for (monotonic_ns, each) in attached.closed() {
            if each.is_wanted(&self.options.endpoints) {
                put(&mut self.out, &output::Closed { monotonic_ns, connection: output::row(&each) })?;
            }
        }
        Ok(())
    }
}

fn put(out: &mut impl Write, line: &impl Serialize) -> Result<(), TcpError> {
    serde_json::to_writer(&mut *out, line).map_err(io::Error::from)?;
    out.write_all(b"\n")?;
    Ok(())
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
