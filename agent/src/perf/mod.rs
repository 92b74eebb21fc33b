//! `storlab-agent counters`: what the kernel's and the CPUs' counters say of the whole node, told as JSON lines.
//!
//! | module | is |
//! | --- | --- |
//! | `events` | the events, and their counters: of CPUs, or of one run's processes |
//! | `options` | how often, and for how long |
//!
//! A run's own processes are counted by the session, which starts them: see [`Counters::from_exec`].

mod events;
mod options;

use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{SysconfVar, sysconf};
use serde::Serialize;

pub use events::{Counted, Counters};

use crate::clock::{SECOND, monotonic_ns, realtime_ns};
use crate::trace::programs::allow_more_files;
use crate::trace::{ending_signals, wait};

/// How `counters` is called.
pub const USAGE: &str =
    "usage: storlab-agent counters [--interval SECONDS] [--for SECONDS] [--hardware] [--check]";

const ONLINE: &str = "/sys/devices/system/cpu/online";
const STAT: &str = "/proc/stat";

#[derive(Debug, thiserror::Error)]
enum CountersError {
    #[error("{0}\n{USAGE}")]
    Option(#[from] options::OptionError),
    #[error("not all can be counted: {0}")]
    Nothing(String),
    #[error("{0}")]
    System(#[from] io::Error),
}

impl From<Errno> for CountersError {
    fn from(errno: Errno) -> Self {
        Self::System(errno.into())
    }
}

/// The first line.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename = "started")]
struct Started<'a> {
    cpus: usize,
    without: &'a std::collections::BTreeMap<&'static str, String>,
    monotonic_ns: u64,
    realtime_ns: u64,
}

/// All counts since the start.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename = "sample")]
struct Sample {
    #[serde(rename = "final")]
    last: bool,
    monotonic_ns: u64,
    /// Of all CPUs together, since the node's start: not idle, not waiting for I/O, not taken by a hypervisor.
    busy_ns: Option<u64>,
    counts: std::collections::BTreeMap<&'static str, u64>,
}

/// Does what the arguments after `counters` say, and gives the exit status.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    match watch(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(CountersError::System(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("storlab-agent: {error}");
            ExitCode::from(if matches!(error, CountersError::Option(_)) { 2 } else { 1 })
        }
    }
}

fn watch(arguments: impl IntoIterator<Item = OsString>) -> Result<(), CountersError> {
    let options = options::parse(arguments)?;
    prctl::set_pdeathsig(Signal::SIGTERM)?;
    let signals = ending_signals()?;
    allow_more_files();
    let cpus = online_cpus(&std::fs::read_to_string(ONLINE)?);
    let counters = Counters::of_cpus(&cpus);
    if !counters.any() {
        let why = counters.without().values().next().cloned().unwrap_or_else(|| "no CPU is online".into());
        return Err(CountersError::Nothing(why));
    }
    if let Some(why) = counters.without().values().next().filter(|_| options.hardware) {
        return Err(CountersError::Nothing(why.clone()));
    }
    if options.check {
        return Ok(());
    }
    let mut out = BufWriter::new(io::stdout());
    let started = Started {
        cpus: cpus.len(),
        without: counters.without(),
        monotonic_ns: monotonic_ns(),
        realtime_ns: realtime_ns(),
    };
    put(&mut out, &started)?;
    sample(&mut out, &counters, false)?;
    let begun = Instant::now();
    let end = options.period.and_then(|period| begun.checked_add(period));
    let mut tick = begun.checked_add(options.interval);
    loop {
        let over = wait(signals.as_fd(), io::stdout().as_fd(), [end, tick].into_iter().flatten().min())?;
        let now = Instant::now();
        if over || end.is_some_and(|end| end <= now) {
            return sample(&mut out, &counters, true);
        }
        if tick.is_some_and(|due| due <= now) {
            sample(&mut out, &counters, false)?;
            // What was missed while the machine stood still is not made up for.
            let next = tick.and_then(|due| due.checked_add(options.interval));
            tick = next.filter(|next| *next > now).or_else(|| now.checked_add(options.interval));
        }
    }
}

fn sample(out: &mut impl Write, counters: &Counters, last: bool) -> Result<(), CountersError> {
    let stat = std::fs::read_to_string(STAT).unwrap_or_default();
    let line =
        Sample { last, monotonic_ns: monotonic_ns(), busy_ns: busy(&stat), counts: counters.read().counts };
    put(out, &line)?;
    out.flush()?;
    Ok(())
}

fn put(out: &mut impl Write, line: &impl Serialize) -> Result<(), CountersError> {
    serde_json::to_writer(&mut *out, line).map_err(io::Error::from)?;
    out.write_all(b"\n")?;
    Ok(())
}

/// The numbers in a list such as `0-3,6`; what is none is left out.
pub(crate) fn online_cpus(listed: &str) -> Vec<i32> {
    let range = |part: &str| -> Option<std::ops::RangeInclusive<i32>> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    listed.trim().split(',').filter_map(range).flatten().collect()
}

/// User, nice, system, irq and softirq of the first line of `/proc/stat`: proc_stat(5).
fn busy(stat: &str) -> Option<u64> {
    let ticks: Vec<u64> = stat
        .lines()
        .next()?
        .strip_prefix("cpu ")?
        .split_whitespace()
        .map_while(|word| word.parse().ok())
        .collect();
    let per_second = u64::try_from(sysconf(SysconfVar::CLK_TCK).ok()??).ok()?;
    let sum: u64 = [0, 1, 2, 5, 6].into_iter().filter_map(|state| ticks.get(state)).sum();
    Some(sum.saturating_mul(SECOND) / per_second.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_ranges_and_numbers() {
        assert_eq!(online_cpus("0-2,5\n"), [0, 1, 2, 5]);
        assert_eq!(online_cpus("0"), [0]);
        assert_eq!(online_cpus("none"), [0; 0]);
    }

    #[test]
    fn idle_and_waiting_cpus_are_not_busy() {
        let second = busy("cpu  100 0 0 5000 300 0 0 7 0 0\ncpu0 1\n").unwrap();
        assert_eq!(second, SECOND); // 100 ticks a second on every Linux that user space can see
        assert_eq!(busy("intr 1"), None);
    }
}
