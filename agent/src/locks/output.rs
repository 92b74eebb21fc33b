//! What goes out: JSON lines, as `docs/reference/locks-output.md` has them.

use serde::Serialize;

use super::counts::{BINS, Caller, Counts};
use crate::clock;

/// The first line.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename = "started")]
pub struct Started {
    /// Ranges of functions that lock for which there was no room: their waits seem to be their own.
    pub left_out: usize,
    pub monotonic_ns: u64,
    pub realtime_ns: u64,
}

/// A function, the module that it is in, the type of lock that it waits for.
type Who<'a> = (Option<&'a str>, Option<&'a str>, &'static str);
/// The caller, who waited, how many waits ended, how many of them slept, ns, and how many took how long: lower and upper
/// bound in ns, count.
type WaitRow<'a> = (Who<'a>, &'static str, u64, u64, u64, Vec<(u64, u64, u64)>);

#[derive(Debug, Serialize)]
#[serde(tag = "event", rename = "counts")]
pub struct CountsLine<'a> {
    #[serde(rename = "final")]
    pub last: bool,
    pub monotonic_ns: u64,
    pub realtime_ns: u64,
    pub waits: Vec<WaitRow<'a>>,
    /// How many different locks each waited for.
    pub locks: Vec<(Who<'a>, u64)>,
    /// Waits that had not ended, of locks that sleep.
    pub waiting: u64,
    pub lost: Lost,
}

#[derive(Debug, Serialize)]
pub struct Lost {
    pub full: u64,
    /// Found no room while they went on.
    pub begun: u64,
    /// Their end was not seen.
    pub ends: u64,
    /// Counted, but without the lock: there are more locks than `locks` has.
    pub locks: u64,
    /// A program was already running on that CPU; `None` where the kernel doesn't count that.
    pub missed: Option<u64>,
}

impl<'a> CountsLine<'a> {
    /// `counts` with names in place of numbers.
    pub fn new(counts: &'a Counts, missed: Option<u64>, last: bool) -> Self {
        let waits = counts.waits.iter().map(|((caller, waiter), sums)| {
            let bins = (0..BINS).filter(|bin| sums.bins[*bin] > 0);
            let times = bins.map(|bin| (lower(bin), 1 << (bin + 1), sums.bins[bin])).collect();
            (who(caller), waiter_name(*waiter), sums.count, sums.slept, sums.time, times)
        });
        Self {
            last,
            monotonic_ns: clock::monotonic_ns(),
            realtime_ns: clock::realtime_ns(),
            waits: waits.collect(),
            locks: counts.locks.iter().map(|(caller, many)| (who(caller), *many)).collect(),
            waiting: counts.waiting,
            lost: Lost {
                full: counts.lost.full,
                begun: counts.lost.begun,
                ends: counts.lost.ends,
                locks: counts.lost.locks,
                missed,
            },
        }
    }
}

/// ns; the first bin has all that took less than 2.
fn lower(bin: usize) -> u64 {
    if bin == 0 { 0 } else { 1 << bin }
}

fn who(caller: &Caller) -> Who<'_> {
    let function = caller.function.as_ref();
    (
        function.map(|(name, _)| name.as_str()),
        function.and_then(|(_, module)| module.as_deref()),
        type_name(caller.kind),
    )
}

fn waiter_name(waiter: u32) -> &'static str {
    match waiter {
        1 => "own",
        2 => "kernel",
        _ => "other",
    }
}

/// By flags, `LCB_F_*` in include/trace/events/lock.h. A semaphore has none.
fn type_name(flags: u32) -> &'static str {
    match flags {
        0 => "semaphore",
        1 => "spinlock",
        2 => "rwsem-read",
        3 => "rwlock-read",
        4 => "rwsem-write",
        5 => "rwlock-write",
        8 | 9 => "rt-mutex",
        10 | 11 => "rt-rw-read",
        12 | 13 => "rt-rw-write",
        18 => "percpu-rwsem-read",
        20 => "percpu-rwsem-write",
        32 => "mutex",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::counts::Sums;

    #[test]
    fn a_line_has_names_and_only_bins_that_are_used() {
        let mut counts = Counts::default();
        let caller = Caller { function: Some(("zio_dva_throttle".into(), Some("zfs".into()))), kind: 32 };
        let mut bins = [0; BINS];
        (bins[0], bins[10]) = (1, 2);
        counts.waits.insert((caller.clone(), 2), Sums { count: 3, slept: 1, time: 3000, bins });
        counts.locks.insert(caller, 4);
        let line = serde_json::to_value(CountsLine::new(&counts, Some(0), true)).unwrap();
        let who = serde_json::json!(["zio_dva_throttle", "zfs", "mutex"]);
        assert_eq!(
            line["waits"],
            serde_json::json!([[who, "kernel", 3, 1, 3000, [[0, 2, 1], [1024, 2048, 2]]]])
        );
        assert_eq!(line["locks"], serde_json::json!([[who, 4]]));
        assert_eq!(line["final"], true);
    }
}
