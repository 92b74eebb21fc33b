//! Latencies, counted in fio's bins: one for each nanosecond up to 127, then 64 to every power of two.
//!
//! Source: fio's `stat.h` and `stat.c` (`FIO_IO_U_PLAT_BITS` 6, 29 groups). The same bins as those of the controller's
//! other loads, so that a percentile means the same, to within 1/128 of itself.

use crate::clock;
use crate::clock::MILLISECOND;
use nix::errno::Errno;
use serde::Serialize;

const BITS: u32 = 6;
const PER_GROUP: u64 = 1 << BITS;
/// Number of bins; the last one also takes all that is longer.
pub const BINS: usize = 29 << BITS;

pub fn bin(latency_ns: u64) -> usize {
    let highest = latency_ns.checked_ilog2().unwrap_or(0);
    if highest <= BITS {
        return latency_ns as usize;
    }
    let shift = highest - BITS;
    let index = (u64::from(shift + 1) << BITS) + ((latency_ns >> shift) - PER_GROUP);
    (index as usize).min(BINS - 1)
}

/// Lower bound (inclusive) and upper bound (exclusive) of a bin, in ns.
pub fn bounds(bin: usize) -> (u64, u64) {
    let bin = bin as u64;
    let shift = (bin >> BITS).saturating_sub(1);
    let lower = if bin < 2 * PER_GROUP { bin } else { (PER_GROUP + bin % PER_GROUP) << shift };
    (lower, lower + (1 << shift))
}

/// How long the operations of one kind took.
#[derive(Debug, Clone)]
pub struct Latencies {
    pub count: u64,
    /// Of all together.
    pub sum_ns: u64,
    pub min_ns: u64,
    pub max_ns: u64,
    bins: Box<[u64; BINS]>,
}

impl Latencies {
    /// Without any operation.
    pub fn new() -> Self {
        Self { count: 0, sum_ns: 0, min_ns: u64::MAX, max_ns: 0, bins: Box::new([0; BINS]) }
    }

    pub fn add(&mut self, latency_ns: u64) {
        self.count += 1;
        self.sum_ns += latency_ns;
        self.min_ns = self.min_ns.min(latency_ns);
        self.max_ns = self.max_ns.max(latency_ns);
        self.bins[bin(latency_ns)] += 1;
    }

    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        for (mine, theirs) in self.bins.iter_mut().zip(other.bins.iter()) {
            *mine += theirs;
        }
    }

    /// Bins in use: lower and upper bound, count.
    pub fn used(&self) -> Vec<(u64, u64, u64)> {
        let used = self.bins.iter().enumerate().filter(|(_, count)| **count > 0);
        used.map(|(bin, count)| (bounds(bin).0, bounds(bin).1, *count)).collect()
    }
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

// What one worker has done in one phase: counts and latencies, no word of single files.

/// How much time one number of the progress stands for.
pub const SLOT_NS: u64 = 200 * MILLISECOND;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    Mkdir,
    /// A whole file: open, writes, fsync, close.
    Create,
    /// The `open` that makes a file.
    Open,
    /// One `write`.
    Write,
    /// `fsync` or `fdatasync` of a file.
    Sync,
    /// `fsync` of a directory.
    SyncDirectory,
    /// The `close` of a file that was written.
    Close,
    /// A whole file: open, reads, close.
    Read,
    /// `fstatat`.
    Stat,
    /// `unlinkat`.
    Delete,
    Rmdir,
}

const OPERATIONS: usize = Operation::Rmdir as usize + 1;

impl Operation {
    pub fn name(self) -> &'static str {
        match self {
            Self::Mkdir => "mkdir",
            Self::Create => "create",
            Self::Open => "open",
            Self::Write => "write",
            Self::Sync => "sync",
            Self::SyncDirectory => "sync-directory",
            Self::Close => "close",
            Self::Read => "read",
            Self::Stat => "stat",
            Self::Delete => "delete",
            Self::Rmdir => "rmdir",
        }
    }
}

/// Counts and latencies of one worker in one phase.
#[derive(Debug)]
pub struct Tally {
    /// Files (or directories) that are done.
    pub files: u64,
    /// Bytes written or read.
    pub bytes: u64,
    /// Files done in each `SLOT_NS` since the phase's start.
    pub progress: Vec<u64>,
    /// `CLOCK_MONOTONIC` when the work began.
    pub start_ns: u64,
    pub end_ns: u64,
    /// The phase's time was over before all files were done.
    pub limited: bool,
    operations: [Option<Latencies>; OPERATIONS],
}

impl Tally {
    pub fn start() -> Self {
        let now = clock::monotonic_ns();
        Self {
            files: 0,
            bytes: 0,
            progress: Vec::new(),
            start_ns: now,
            end_ns: now,
            limited: false,
            operations: [const { None }; OPERATIONS],
        }
    }

    /// Does and times one operation; gives what it gave, and the nanoseconds.
    pub fn timed<T>(
        &mut self,
        operation: Operation,
        call: impl FnOnce() -> nix::Result<T>,
    ) -> Result<(T, u64), (Operation, Errno)> {
        let before = clock::monotonic_ns();
        let result = call();
        let after = clock::monotonic_ns();
        let result = result.map_err(|errno| (operation, errno))?;
        self.add(operation, after - before);
        self.end_ns = after;
        Ok((result, after - before))
    }

    /// One more operation that took so long.
    pub fn add(&mut self, operation: Operation, latency_ns: u64) {
        self.operations[operation as usize].get_or_insert_default().add(latency_ns);
    }

    pub fn done(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes += bytes;
        let slot = ((self.end_ns - self.start_ns) / SLOT_NS) as usize;
        if self.progress.len() <= slot {
            self.progress.resize(slot + 1, 0);
        }
        self.progress[slot] += 1;
    }

    pub fn operations(&self) -> impl Iterator<Item = (usize, &Latencies)> {
        self.operations.iter().enumerate().filter_map(|(at, latencies)| Some((at, latencies.as_ref()?)))
    }
}

pub fn operation(number: usize) -> Operation {
    use Operation::{Close, Create, Delete, Mkdir, Open, Read, Rmdir, Stat, Sync, SyncDirectory, Write};
    const ALL: [Operation; OPERATIONS] =
        [Mkdir, Create, Open, Write, Sync, SyncDirectory, Close, Read, Stat, Delete, Rmdir];
    ALL[number]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bins_follow_each_other_without_a_gap() {
        for number in 1..BINS {
            assert_eq!(bounds(number - 1).1, bounds(number).0, "{number}");
        }
        assert_eq!(bounds(0), (0, 1));
        assert_eq!(bounds(BINS - 1).1, 1 << 34, "17.2 s");
    }

    proptest! {
        #[test]
        fn a_latency_lies_in_its_bin(latency in 0_u64..(1 << 34)) {
            let (lower, upper) = bounds(bin(latency));
            prop_assert!(lower <= latency && latency < upper);
        }
    }

    #[test]
    fn what_is_longer_than_all_bins_is_in_the_last() {
        assert_eq!(bin(u64::MAX), BINS - 1);
    }

    #[test]
    fn two_workers_latencies_are_added() {
        let (mut one, mut other) = (Latencies::new(), Latencies::new());
        one.add(5);
        other.add(5);
        other.add(1000);
        one.merge(&other);
        assert_eq!((one.count, one.sum_ns, one.min_ns, one.max_ns), (3, 1010, 5, 1000));
        assert_eq!(one.used(), [(5, 6, 2), (1000, 1008, 1)]);
    }
}

#[cfg(test)]
mod tests_of_tally {
    use super::*;

    #[test]
    fn operations_are_found_by_their_number() {
        for number in 0..OPERATIONS {
            assert_eq!(operation(number) as usize, number);
        }
    }

    #[test]
    fn what_fails_is_not_counted() {
        let mut tally = Tally::start();
        assert_eq!(
            tally.timed(Operation::Stat, || Err::<(), _>(Errno::ENOENT)),
            Err((Operation::Stat, Errno::ENOENT))
        );
        assert_eq!(tally.operations().count(), 0);
    }
}
