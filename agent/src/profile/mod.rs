//! `storlab-agent profile`: what the CPUs do at the ticks of a clock, as stacks, told as JSON lines.
//!
//! | module | is |
//! | --- | --- |
//! | `programs` | the eBPF program (`agent/bpf/profile.bpf.c`), loaded and attached to every CPU's clock |
//! | `stacks` | the stacks that were seen, by number |
//! | `mapped` | which file an address of a program is in |
//! | `elf` | the functions of such a file |
//!
//! Addresses get their names when all is over: reading symbols takes CPU, which would be seen.

mod elf;
mod mapped;
mod programs;
mod stacks;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;

use crate::clock::{monotonic_ns, realtime_ns};
use crate::perf::online_cpus;
use crate::watching::{OptionError, SHORTEST, Watch, WatchError, exit_code, read_options, seconds, text};
use programs::Attached;
use stacks::Stacks;

/// How `profile` is called.
pub const USAGE: &str =
    "usage: storlab-agent profile [--frequency HERTZ] [--interval SECONDS] [--for SECONDS] [--check]";

const ONLINE: &str = "/sys/devices/system/cpu/online";

/// Not 100: what a machine does on its own clock's ticks would always or never be seen.
const FREQUENCY: u64 = 99;
const FASTEST: u64 = 1000;
const INTERVAL: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProfileOptions {
    /// Samples a second on each CPU.
    pub frequency: u64,
    pub interval: Duration,
    /// End after this time.
    pub period: Option<Duration>,
    /// Only find out whether it can be.
    pub check: bool,
}

/// Understands the arguments that follow `profile`.
fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<ProfileOptions, OptionError> {
    let mut options = ProfileOptions { frequency: FREQUENCY, interval: INTERVAL, period: None, check: false };
    read_options(arguments, |name, values| {
        match name {
            "frequency" => options.frequency = frequency(&text(values)?)?,
            "check" => options.check = true,
            "interval" => options.interval = seconds(name, values, SHORTEST)?,
            "for" => options.period = Some(seconds(name, values, SHORTEST)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    if options.interval > LONGEST {
        return Err(OptionError(format!("--interval is {} s at most", LONGEST.as_secs())));
    }
    Ok(options)
}

fn frequency(value: &str) -> Result<u64, OptionError> {
    value.parse().ok().filter(|number| (1..=FASTEST).contains(number)).ok_or_else(|| {
        OptionError(format!("--frequency is a number of samples a second from 1 to {FASTEST}, not {value:?}"))
    })
}

/// The first line.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename = "started")]
struct Started {
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
    exit_code(watch(arguments), USAGE)
}

fn watch(arguments: impl IntoIterator<Item = OsString>) -> Result<(), WatchError> {
    let options = parse(arguments)?;
    let mut watch = Watch::prepare()?;
    let cpus = online_cpus(&std::fs::read_to_string(ONLINE)?);
    let attached = Attached::new(&cpus, options.frequency)
        .map_err(|why| WatchError::Refused(format!("CPUs can't be sampled: {why}")))?;
    if options.check {
        return Ok(());
    }
    watch.tell(&Started {
        clock: "cpu-clock",
        frequency: options.frequency,
        cpus: cpus.len(),
        monotonic_ns: monotonic_ns(),
        realtime_ns: realtime_ns(),
    })?;
    watch.begin(Some(options.interval), options.period);
    let mut profiler = Profiler { attached, stacks: Stacks::default(), lost: 0, watch };
    while !profiler.watch.is_over()? {
        profiler.take()?;
    }
    profiler.attached.stop();
    profiler.take()?;
    profiler.tell_stacks()
}

struct Profiler {
    attached: Attached,
    stacks: Stacks,
    lost: u64,
    watch: Watch,
}

impl Profiler {
    /// Takes what the program has left, and says how much of what that is.
    fn take(&mut self) -> Result<(), WatchError> {
        let monotonic_ns = monotonic_ns();
        self.attached.each(|bytes| self.stacks.add(bytes));
        let lost = self.attached.lost() + self.stacks.without_room();
        let since = lost.saturating_sub(self.lost);
        self.lost = lost;
        Ok(self.watch.tell(&Samples { monotonic_ns, lost: since, counts: self.stacks.since() })?)
    }

    fn tell_stacks(&mut self) -> Result<(), WatchError> {
        let (rows, nameless) = self.stacks.named();
        for row in rows {
            self.watch.put(&row)?;
        }
        Ok(self.watch.tell(&End { monotonic_ns: monotonic_ns(), nameless: nameless.as_deref() })?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_named() {
        let said = |line: &str| parse(line.split_whitespace().map(OsString::from)).map_err(|wrong| wrong.0);
        let options = said("--frequency 49 --for 2 --interval 0.5").unwrap();
        assert_eq!((options.frequency, options.interval), (49, Duration::from_millis(500)));
        assert!(said("--frequency 0").unwrap_err().contains("from 1 to 1000, not \"0\""));
        assert!(said("--interval 2").unwrap_err().contains("1 s at most"));
        assert!(said("--for inf").unwrap_err().contains("at least 0.01, not \"inf\""));
        assert_eq!(said("--for"), Err("missing argument for option '--for'".into()));
        assert_eq!(said("-x"), Err("invalid option '-x'".into()));
    }
}
