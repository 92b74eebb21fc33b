//! `storlab-agent locks`: waits for the kernel's locks, counted in the kernel by who waits, told as JSON lines.
//!
//! | module | is |
//! | --- | --- |
//! | `functions` | which of the kernel's functions lock |
//! | `programs` | the eBPF programs (`agent/bpf/locks.bpf.c`), loaded and attached |
//! | `counts` | what they leave in their maps, by function |
//! | `output` | the lines |

mod counts;
mod functions;
mod output;
mod programs;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use crate::symbols::Symbols;
use crate::watching::{OptionError, Watch, WatchError, cgroup, exit_code, read_options, seconds};
use crate::{clock, sys};
use programs::Attached;

/// How `locks` is called.
pub const USAGE: &str =
    "usage: storlab-agent locks [--check] [--cgroup ID] [--interval SECONDS] [--for SECONDS]";

/// The options of `locks`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LockOptions {
    pub check: bool,
    /// The id of a cgroup (v2) whose waits are counted by themselves; 0: none.
    pub cgroup: u64,
    /// Tell the counts so often.
    pub interval: Option<Duration>,
    /// End after this time.
    pub period: Option<Duration>,
}

const SHORTEST: Duration = Duration::from_millis(1);

/// Understands the arguments that follow `locks`.
fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<LockOptions, OptionError> {
    let mut options = LockOptions::default();
    read_options(arguments, |name, values| {
        match name {
            "check" => options.check = true,
            "cgroup" => options.cgroup = cgroup(values)?,
            "interval" => options.interval = Some(seconds(name, values, SHORTEST)?),
            "for" => options.period = Some(seconds(name, values, SHORTEST)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(options)
}

/// Does what the arguments after `locks` say, and gives the exit status.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    exit_code(follow(arguments), USAGE)
}

fn follow(arguments: impl IntoIterator<Item = OsString>) -> Result<(), WatchError> {
    let options = parse(arguments)?;
    let watch = Watch::prepare()?;
    let symbols = Symbols::of_kernel().map_err(|none| WatchError::Refused(none.to_string()))?;
    let locking = functions::that_lock(&symbols);
    let attached = programs::attach(options.cgroup, &locking)?;
    let left_out = locking.len().saturating_sub(functions::MAX_RANGES);
    sys::give_memory_back(); // the kernel's types were most of it
    if options.check {
        return Ok(());
    }
    Watcher { symbols, attached, watch }.tell(&options, left_out)
}

struct Watcher {
    symbols: Symbols,
    attached: Attached,
    watch: Watch,
}

impl Watcher {
    /// Tells counts until it is time to end. `left_out`: ranges of functions that lock for which there was no room.
    fn tell(&mut self, options: &LockOptions, left_out: usize) -> Result<(), WatchError> {
        let (monotonic_ns, realtime_ns) = (clock::monotonic_ns(), clock::realtime_ns());
        self.watch.tell(&output::Started { left_out, monotonic_ns, realtime_ns })?;
        self.watch.begin(options.interval, options.period);
        while !self.watch.is_over()? {
            self.tell_counts(false)?;
        }
        self.attached.detach();
        self.tell_counts(true)
    }

    fn tell_counts(&mut self, last: bool) -> Result<(), WatchError> {
        self.symbols.refresh().map_err(|none| WatchError::Refused(none.to_string()))?;
        let counts = counts::read(&self.attached.ebpf, &self.symbols)?;
        Ok(self.watch.tell(&output::CountsLine::new(&counts, self.attached.missed(), last))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(line: &str) -> Result<LockOptions, OptionError> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn what_is_asked_is_understood() {
        let second = Some(Duration::from_secs(1));
        let wanted = LockOptions { check: true, cgroup: 7, interval: second, period: second };
        assert_eq!(parse_words("--check --cgroup 7 --interval 1 --for 1"), Ok(wanted));
        assert_eq!(parse_words(""), Ok(LockOptions::default()));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let said = |line: &str| parse_words(line).unwrap_err().0;
        assert_eq!(said("--cgroup 0"), "--cgroup is the number of a group, not \"0\"");
        assert_eq!(said("--for"), "missing argument for option '--for'");
        assert_eq!(said("--disk"), "invalid option '--disk'");
    }
}
