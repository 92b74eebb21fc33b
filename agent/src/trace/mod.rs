//! `storlab-agent trace`: block I/O seen from the kernel, counted in the kernel, told as JSON lines.
//!
//! | module | is |
//! | --- | --- |
//! | `options` | what is looked at |
//! | `disks` | disks by name and number |
//! | `btf`, `tracefs` | the kernel's types; its descriptions of tracepoints |
//! | `filters`, `programs` | the constants of the eBPF programs (`agent/bpf/`); these, loaded and attached |
//! | `counters` | what the programs leave in their maps |
//! | `names`, `output` | the lines |

pub(crate) mod btf;
pub(crate) mod counters;
mod disks;
mod filters;
mod names;
pub(crate) mod options;
mod output;
pub(crate) mod programs;
pub(crate) mod tracefs;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use aya::maps::{MapData, RingBuf};

use crate::watching::{Due, Watch, WatchError, exit_code};
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

/// Does what the arguments after `trace` say, and gives the exit status.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    exit_code(trace(arguments), USAGE)
}

fn trace(arguments: impl IntoIterator<Item = OsString>) -> Result<(), WatchError> {
    let options = options::parse(arguments)?;
    programs::allow_files().map_err(|why| why.of_watching(programs::NOT_TRACED))?;
    let extents = options
        .disks
        .iter()
        .map(|name| disks::find(Path::new(SYS), name))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|none| WatchError::NotThere(none.to_string()))?;
    let watch = Watch::prepare()?;
    let attached = programs::attach(&options, &extents)?;
    sys::give_memory_back(); // the kernel's types were most of it
    Tracer { options, attached, disks: Names::new(Path::new(SYS)), watch }.follow()
}

struct Tracer {
    options: TraceOptions,
    attached: Attached,
    disks: Names,
    watch: Watch,
}

impl Tracer {
    /// Tells counts and events until it is time to end.
    fn follow(&mut self) -> Result<(), WatchError> {
        self.watch.tell(&output::Started {
            hook: self.attached.hook.name(),
            reason: self.attached.reason.as_deref(),
            disks: &self.options.disks,
            latency: self.options.latency,
            without: &self.attached.without,
            monotonic_ns: clock::monotonic_ns(),
            realtime_ns: clock::realtime_ns(),
        })?;
        let mut ring = match self.attached.ebpf.take_map("EVENTS") {
            Some(map) if self.options.events => Some(RingBuf::try_from(map)?),
            _ => None,
        };
        self.watch.begin(self.options.interval, self.options.period);
        loop {
            let due = self.watch.next(ring.as_ref().map(|_| EVENTS_EVERY))?;
            if let Some(ring) = &mut ring {
                self.tell_events(ring)?;
            }
            match due {
                Due::Nothing => {}
                Due::Line => self.tell_counts(false)?,
                Due::End => break,
            }
        }
        self.attached.detach();
        if let Some(ring) = &mut ring {
            self.tell_events(ring)?;
        }
        self.tell_counts(true)
    }

    fn tell_events(&mut self, ring: &mut RingBuf<MapData>) -> Result<(), WatchError> {
        if counters::drain(ring, &mut self.disks, self.watch.out())? > 0 {
            self.watch.flush()?;
        }
        Ok(())
    }

    fn tell_counts(&mut self, last: bool) -> Result<(), WatchError> {
        let counts = counters::read(&self.attached.ebpf)?;
        let in_flight =
            (last && self.options.latency).then(|| counters::in_flight(&self.attached.ebpf)).transpose()?;
        let missed = self.attached.missed();
        let line = output::CountsLine::new(&counts, &mut self.disks, missed, last, in_flight);
        Ok(self.watch.tell(&line)?)
    }
}
