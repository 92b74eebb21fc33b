//! The events that are counted, and their counters.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::fd::OwnedFd;

use nix::errno::Errno;
use serde::Serialize;

use crate::sys::{Scope, open_counter};

const HARDWARE: u32 = 0;
const SOFTWARE: u32 = 1;

/// One kind of event: its name in what is printed, and its type and number in `linux/perf_event.h`.
#[derive(Debug, Clone, Copy)]
struct Kind {
    name: &'static str,
    kind: u32,
    number: u64,
}

/// Task clock comes first: of a whole CPU it says nothing, as it goes on while that is idle.
const KINDS: [Kind; 7] = [
    Kind { name: "task_clock", kind: SOFTWARE, number: 1 }, // ns
    Kind { name: "page_faults", kind: SOFTWARE, number: 2 },
    Kind { name: "context_switches", kind: SOFTWARE, number: 3 },
    Kind { name: "migrations", kind: SOFTWARE, number: 4 },
    Kind { name: "cycles", kind: HARDWARE, number: 0 },
    Kind { name: "instructions", kind: HARDWARE, number: 1 },
    Kind { name: "llc_misses", kind: HARDWARE, number: 3 }, // PERF_COUNT_HW_CACHE_MISSES
];

/// Where the kernel shows what it allows.
const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";

/// What was counted, and, of the rest, why it was not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// By name; times in ns.
    pub counts: BTreeMap<&'static str, u64>,
    /// By name: a sentence.
    pub without: BTreeMap<&'static str, String>,
}

#[derive(Debug)]
pub struct Counters {
    open: Vec<(&'static str, Vec<Counter>)>,
    without: BTreeMap<&'static str, String>,
}

impl Counters {
    pub fn of_cpus(cpus: &[i32]) -> Self {
        let scopes: Vec<_> = cpus.iter().map(|cpu| Scope::Cpu(*cpu)).collect();
        Self::open(&KINDS[1..], &scopes)
    }

    /// What a process and all that it starts do, from its next exec on.
    pub fn from_exec(process: i32) -> Self {
        Self::open(&KINDS, &[Scope::FromExec(process)])
    }

    fn open(kinds: &[Kind], scopes: &[Scope]) -> Self {
        let mut counters = Self { open: vec![], without: BTreeMap::new() };
        for Kind { name, kind, number } in kinds {
            let opened = scopes.iter().map(|scope| open_counter(*kind, *number, *scope).map(Counter::new));
            match opened.collect::<Result<Vec<_>, _>>() {
                Ok(each) => counters.open.push((name, each)),
                Err(errno) => drop(counters.without.insert(name, reason(*kind, errno))),
            }
        }
        counters
    }

    pub fn any(&self) -> bool {
        !self.open.is_empty()
    }

    /// Why not, by name.
    pub fn without(&self) -> &BTreeMap<&'static str, String> {
        &self.without
    }

    /// What has been counted so far.
    pub fn read(&self) -> Counted {
        let mut counted = Counted { counts: BTreeMap::new(), without: self.without.clone() };
        for (name, each) in &self.open {
            match each.iter().map(Counter::read).sum::<Option<u64>>() {
                Some(count) => drop(counted.counts.insert(name, count)),
                None => drop(counted.without.insert(name, "its counter never ran".into())),
            }
        }
        counted
    }
}

/// A count, and how long, in ns, it was wanted and counting.
type Read = [u64; 3];

#[derive(Debug)]
struct Counter {
    file: File,
    /// What it told last, and the sum until then.
    last: Cell<(Read, u64)>,
}

impl Counter {
    fn new(fd: OwnedFd) -> Self {
        Self { file: fd.into(), last: Cell::default() }
    }

    /// What it has counted so far; `None` where it never ran.
    fn read(&self) -> Option<u64> {
        let mut bytes = [0; 24];
        (&self.file).read_exact(&mut bytes).ok()?;
        let now = [0, 8, 16].map(|at| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap_or_default()));
        let (before, mut sum) = self.last.get();
        if let Some(more) = grown(before, now) {
            sum = sum.saturating_add(more);
            self.last.set((now, sum));
        }
        (now[2] > 0).then_some(sum)
    }
}

/// What was counted from one read to another, scaled to the whole time where the counter had to share its place with
/// others; `None` where it did not run meanwhile. The whole count, scaled by the whole time, could fall.
fn grown(before: Read, now: Read) -> Option<u64> {
    let [count, enabled, running] = [0, 1, 2].map(|at| now[at].saturating_sub(before[at]));
    if running == 0 {
        return None;
    }
    let scaled = u128::from(count) * u128::from(enabled.max(running)) / u128::from(running);
    u64::try_from(scaled).ok()
}

fn reason(kind: u32, errno: Errno) -> String {
    match errno {
        Errno::EACCES | Errno::EPERM => {
            let level = fs::read_to_string(PARANOID).unwrap_or_default();
            format!(
                "not allowed: kernel.perf_event_paranoid is {}, and this process is without CAP_PERFMON",
                level.trim()
            )
        }
        Errno::ENOENT | Errno::EOPNOTSUPP | Errno::ENODEV if kind == HARDWARE => {
            "this machine shows no hardware counter (PMU) for it, as most virtual machines".into()
        }
        Errno::ENOSYS => "this kernel has no perf events (CONFIG_PERF_EVENTS)".into(),
        errno => format!("the kernel refuses to count it: {}", errno.desc()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_counted_has_a_reason() {
        let cpus = [i32::MAX];
        let counters = Counters::of_cpus(&cpus);
        assert!(!counters.any());
        assert_eq!(counters.without().len(), KINDS.len() - 1);
        assert!(reason(HARDWARE, Errno::ENOENT).contains("PMU"));
        assert!(reason(SOFTWARE, Errno::EACCES).contains("perf_event_paranoid"));
    }

    #[test]
    fn a_count_does_not_fall_where_a_counter_shares_its_place() {
        let reads = [[0, 0, 0], [5000, 10, 5], [5000, 11, 6], [5000, 12, 6], [5100, 14, 7]];
        let more: Vec<_> = reads.windows(2).map(|both| grown(both[0], both[1])).collect();
        assert_eq!(more, [Some(10_000), Some(0), None, Some(200)]);
        assert_eq!(grown([u64::MAX, 1, 1], [0, 2, 2]), Some(0));
    }

    #[test]
    fn a_process_that_never_executes_another_program_counts_nothing() {
        let counters = Counters::from_exec(std::process::id() as i32);
        if counters.any() {
            assert!(counters.read().counts.is_empty());
        }
    }
}
