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
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use crate::watching::{Watch, WatchError, exit_code};
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

fn no_diag(error: io::Error) -> WatchError {
    let what = "the kernel can't be asked for TCP connections";
    WatchError::Refused(format!("{what}: {error} (it takes sock_diag, the module tcp_diag of some kernels)"))
}

/// Does what the arguments after `tcp` say, and gives the exit status.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    exit_code(follow(arguments), USAGE)
}

fn follow(arguments: impl IntoIterator<Item = OsString>) -> Result<(), WatchError> {
    let options = options::parse(arguments)?;
    let watch = Watch::prepare()?;
    let diag = Diag::open().map_err(no_diag)?;
    let (attached, acks) = attach(&options);
    sys::give_memory_back(); // the kernel's types were most of it
    let reasons = [attached.as_ref().err().cloned(), acks.as_ref().err().cloned()];
    let (attached, acks, known) = (attached.ok(), acks.ok(), HashMap::new());
    let counters = counters::Files::open();
    let mut watcher = Watcher { options, diag, counters, attached, acks, looked: None, known, watch };
    watcher.tell_start(&reasons)?;
    watcher.watch.begin(Some(watcher.options.interval), watcher.options.period);
    while !watcher.watch.is_over()? {
        watcher.sample(false)?;
    }
    watcher.sample(true)
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
    watch: Watch,
}

impl Watcher {
    fn tell_start(&mut self, [events, distributions]: &[Option<String>; 2]) -> Result<(), WatchError> {
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
        self.watch.put(&line)?;
        self.sample(false)
    }

    fn sample(&mut self, last: bool) -> Result<(), WatchError> {
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
        self.watch.tell(&line)?;
        self.known = now;
        Ok(())
    }
}

impl Watcher {
    /// All that are wanted. To look for them takes a walk through the kernel's whole table, so it is done only if some
    /// were established since; those that are known are asked for one by one.
    fn connections(&mut self, last: bool) -> Result<Vec<Connection>, WatchError> {
        let opened = self.attached.as_ref().map(Attached::opened);
        if !last && opened.is_some() && opened == self.looked {
            return self.diag.again(self.known.values()).map_err(no_diag);
        }
        self.looked = opened;
        self.diag.connections(&self.options.endpoints).map_err(no_diag)
    }

    fn tell_closed(&mut self) -> Result<(), WatchError> {
        let Some(attached) = &mut self.attached else { return Ok(()) };
        for (monotonic_ns, each) in attached.closed() {
            if each.is_wanted(&self.options.endpoints) {
                self.watch.put(&output::Closed { monotonic_ns, connection: output::row(&each) })?;
            }
        }
        Ok(())
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
