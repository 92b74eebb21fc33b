//! The events that are counted, and their counters.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;

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

/// Counters at work.
#[derive(Debug)]
pub struct Counters {
    open: Vec<(&'static str, Vec<File>)>,
    without: BTreeMap<&'static str, String>,
}

impl Counters {
    /// All that happens on these CPUs.
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
            let opened = scopes.iter().map(|scope| open_counter(*kind, *number, *scope).map(File::from));
            match opened.collect::<Result<Vec<_>, _>>() {
                Ok(files) => counters.open.push((name, files)),
                Err(errno) => drop(counters.without.insert(name, reason(*kind, errno))),
            }
        }
        counters
    }

    /// Whether anything is counted.
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
        for (name, files) in &self.open {
            match files.iter().map(read_one).sum::<Option<u64>>() {
                Some(count) => drop(counted.counts.insert(name, count)),
                None => drop(counted.without.insert(name, "its counter never ran".into())),
            }
        }
        counted
    }
}

/// A count, scaled to the whole time where the counter had to share its place with others.
fn read_one(mut file: &File) -> Option<u64> {
    let mut bytes = [0; 24];
    file.read_exact(&mut bytes).ok()?;
    let [count, enabled, running] =
        [0, 8, 16].map(|at| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap_or_default()));
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
    fn a_process_that_never_executes_another_program_counts_nothing() {
        let counters = Counters::from_exec(std::process::id() as i32);
        if counters.any() {
            assert!(counters.read().counts.is_empty());
        }
    }
}
