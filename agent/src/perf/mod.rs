//! `storlab-agent counters`: what the kernel's and the CPUs' counters say of the whole node, told as JSON lines.
//!
//! | module | is |
//! | --- | --- |
//! | `events` | the events, and their counters: of CPUs, or of one run's processes |
//!
//! A run's own processes are counted by the session, which starts them: see [`Counters::from_exec`].

mod events;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use nix::unistd::{SysconfVar, sysconf};
use serde::Serialize;

pub use events::{Counted, Counters};

use crate::clock::{SECOND, monotonic_ns, realtime_ns};
use crate::trace::programs::allow_more_files;
use crate::watching::{OptionError, SHORTEST, Watch, WatchError, exit_code, read_options, seconds};

/// How `counters` is called.
pub const USAGE: &str =
    "usage: storlab-agent counters [--interval SECONDS] [--for SECONDS] [--hardware] [--check]";

const ONLINE: &str = "/sys/devices/system/cpu/online";
const STAT: &str = "/proc/stat";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountersOptions {
    pub interval: Duration,
    /// End after this time.
    pub period: Option<Duration>,
    /// Count nothing where the CPU's own counters can't be used.
    pub hardware: bool,
    /// Only find out whether anything can be counted.
    pub check: bool,
}

/// Understands the arguments that follow `counters`.
fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<CountersOptions, OptionError> {
    let mut options =
        CountersOptions { interval: Duration::from_secs(1), period: None, hardware: false, check: false };
    read_options(arguments, |name, values| {
        match name {
            "hardware" => options.hardware = true,
            "check" => options.check = true,
            "interval" => options.interval = seconds(name, values, SHORTEST)?,
            "for" => options.period = Some(seconds(name, values, SHORTEST)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(options)
}

/// The first line.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename = "started")]
struct Started<'a> {
    cpus: usize,
    without: &'a BTreeMap<&'static str, String>,
    monotonic_ns: u64,
    realtime_ns: u64,
}

#[derive(Debug, Serialize)]
#[serde(tag = "event", rename = "sample")]
struct Sample {
    #[serde(rename = "final")]
    last: bool,
    monotonic_ns: u64,
    /// Of all CPUs together, since the node's start: not idle, not waiting for I/O, not taken by a hypervisor.
    busy_ns: Option<u64>,
    counts: BTreeMap<&'static str, u64>,
}

/// Does what the arguments after `counters` say, and gives the exit status.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    exit_code(watch(arguments), USAGE)
}

fn watch(arguments: impl IntoIterator<Item = OsString>) -> Result<(), WatchError> {
    let options = parse(arguments)?;
    let mut watch = Watch::prepare()?;
    allow_more_files();
    let cpus = online_cpus(&std::fs::read_to_string(ONLINE)?);
    let counters = Counters::of_cpus(&cpus);
    let why = counters.without().values().next();
    if !counters.any() || (options.hardware && why.is_some()) {
        let why = why.map_or("no CPU is online", String::as_str);
        return Err(WatchError::Refused(format!("not all can be counted: {why}")));
    }
    if options.check {
        return Ok(());
    }
    watch.put(&Started {
        cpus: cpus.len(),
        without: counters.without(),
        monotonic_ns: monotonic_ns(),
        realtime_ns: realtime_ns(),
    })?;
    watch.tell(&sample(&counters, false))?;
    watch.begin(Some(options.interval), options.period);
    while !watch.is_over()? {
        watch.tell(&sample(&counters, false))?;
    }
    Ok(watch.tell(&sample(&counters, true))?)
}

fn sample(counters: &Counters, last: bool) -> Sample {
    let busy_ns = busy(&std::fs::read_to_string(STAT).unwrap_or_default());
    Sample { last, monotonic_ns: monotonic_ns(), busy_ns, counts: counters.read().counts }
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

    #[test]
    fn what_is_wrong_is_named() {
        let said = |line: &str| parse(line.split_whitespace().map(OsString::from)).map_err(|wrong| wrong.0);
        assert_eq!(said("--interval 0.5").unwrap().interval, Duration::from_millis(500));
        let wrong = "--for is a time in seconds, at least 0.01, not \"0\"";
        assert_eq!(said("--for 0"), Err(wrong.into()));
        assert_eq!(said("--for"), Err("missing argument for option '--for'".into()));
        assert_eq!(said("--x"), Err("invalid option '--x'".into()));
    }
}
