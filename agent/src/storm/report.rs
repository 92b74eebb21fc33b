//! The document that a storm leaves.

use std::collections::BTreeMap;

use serde::Serialize;

use super::latency::Latencies;
use super::latency::{SLOT_NS, Tally, operation};
use super::spec::Phase;
use super::spec::StormError;
use crate::clock;

/// Everything that was measured. Times are in ns; those of beginnings count from the program's start.
#[derive(Debug, Serialize)]
pub struct Report {
    pub format: u32,
    /// What ended it before its time.
    pub error: Option<StormError>,
    pub phases: Vec<PhaseReport>,
    /// `syncfs` after phases.
    pub syncs: Vec<Step>,
    /// Caches that were dropped before phases.
    pub drops: Vec<Step>,
    /// What one number of `progress` stands for.
    pub slot_ns: u64,
    #[serde(skip)]
    pub(super) began_ns: u64,
}

/// What all workers together did in one phase.
#[derive(Debug, Serialize)]
pub struct PhaseReport {
    pub phase: Phase,
    /// When the first worker began.
    pub start_ns: u64,
    /// From then until the last one was done.
    pub elapsed_ns: u64,
    pub files: u64,
    /// Bytes written or read.
    pub bytes: u64,
    /// The phase's time was over before all files were done.
    pub limited: bool,
    /// Of each: files, and ns.
    pub workers: Vec<(u64, u64)>,
    /// Files done in each slot of time.
    pub progress: Vec<u64>,
    pub operations: BTreeMap<&'static str, OperationReport>,
}

/// How long the operations of one kind took.
#[derive(Debug, Serialize)]
pub struct OperationReport {
    pub count: u64,
    /// Of all together.
    pub sum_ns: u64,
    pub min_ns: u64,
    pub max_ns: u64,
    pub bins: Vec<(u64, u64, u64)>,
}

#[derive(Debug, Serialize)]
pub struct Step {
    pub phase: Phase,
    pub start_ns: u64,
    pub elapsed_ns: u64,
}

impl Report {
    pub fn new() -> Self {
        Self {
            format: 1,
            error: None,
            phases: Vec::new(),
            syncs: Vec::new(),
            drops: Vec::new(),
            slot_ns: SLOT_NS,
            began_ns: clock::monotonic_ns(),
        }
    }
}

impl Default for Report {
    fn default() -> Self {
        Self::new()
    }
}

impl PhaseReport {
    /// Of a phase that is done; `began_ns` is when the program began.
    pub fn new(phase: Phase, tallies: &[Tally], began_ns: u64) -> Self {
        let start = tallies.iter().map(|tally| tally.start_ns).min().unwrap_or(began_ns);
        let end = tallies.iter().map(|tally| tally.end_ns).max().unwrap_or(began_ns);
        let mut progress = vec![0; tallies.iter().map(|tally| tally.progress.len()).max().unwrap_or(0)];
        let mut together: BTreeMap<&'static str, Latencies> = BTreeMap::new();
        for tally in tallies {
            for (sum, count) in progress.iter_mut().zip(&tally.progress) {
                *sum += count;
            }
            for (number, latencies) in tally.operations() {
                together.entry(operation(number).name()).or_default().merge(latencies);
            }
        }
        Self {
            phase,
            start_ns: start - began_ns,
            elapsed_ns: end - start,
            files: tallies.iter().map(|tally| tally.files).sum(),
            bytes: tallies.iter().map(|tally| tally.bytes).sum(),
            limited: tallies.iter().any(|tally| tally.limited),
            workers: tallies.iter().map(|tally| (tally.files, tally.end_ns - tally.start_ns)).collect(),
            progress,
            operations: together.into_iter().map(|(name, all)| (name, OperationReport::of(&all))).collect(),
        }
    }
}

impl OperationReport {
    fn of(all: &Latencies) -> Self {
        Self {
            count: all.count,
            sum_ns: all.sum_ns,
            min_ns: all.min_ns,
            max_ns: all.max_ns,
            bins: all.used(),
        }
    }
}

impl Step {
    /// Of something that began at `start_ns` and is over now.
    pub fn since(phase: Phase, start_ns: u64, began_ns: u64) -> Self {
        let elapsed_ns = clock::monotonic_ns() - start_ns;
        Self { phase, start_ns: start_ns - began_ns, elapsed_ns }
    }
}
