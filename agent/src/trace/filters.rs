//! What the programs look at, as they find it in their constants.

use aya::EbpfLoader;

use super::disks::Extent;
use super::options::{COMM_SIZE, MAX_DISKS, MAX_VALUES, TraceOptions};

/// The constants of `bpf/filter.h`, as they lie in memory there.
pub struct Filters {
    disk_count: u32,
    devices: [u32; MAX_DISKS],
    firsts: [u64; MAX_DISKS],
    ends: [u64; MAX_DISKS],
    operations: u32,
    length_count: u32,
    lengths: [u32; MAX_VALUES],
    alignment_count: u32,
    alignments: [u32; MAX_VALUES],
    comm_count: u32,
    comms: [[u8; COMM_SIZE]; MAX_VALUES],
    pub own_cgroup: u64,
    by_comm: u8,
    pub latency: u8,
    pub events: u8,
    pub cpus: u32,
    pub takes_bios: bool,
}

impl Filters {
    pub fn new(options: &TraceOptions, extents: &[Extent]) -> Self {
        let mut comms = [[0; COMM_SIZE]; MAX_VALUES];
        for (place, comm) in comms.iter_mut().zip(&options.comms) {
            place[..comm.len()].copy_from_slice(comm);
        }
        let bits = options.operations.iter().fold(0, |bits, operation| bits | 1 << operation);
        Self {
            disk_count: count(extents.len()),
            devices: filled(extents.iter().map(|extent| extent.device)),
            firsts: filled(extents.iter().map(|extent| extent.first)),
            ends: filled(extents.iter().map(|extent| extent.end)),
            operations: if bits == 0 { u32::MAX } else { bits },
            length_count: count(options.lengths.len()),
            lengths: filled(options.lengths.iter().copied()),
            alignment_count: count(options.alignments.len()),
            alignments: filled(options.alignments.iter().copied()),
            comm_count: count(options.comms.len()),
            comms,
            own_cgroup: options.cgroup,
            by_comm: options.by_comm.into(),
            latency: options.latency.into(),
            events: options.events.into(),
            cpus: possible_cpus(),
            takes_bios: extents.iter().any(|extent| extent.takes_bios),
        }
    }

    pub fn set<'a>(&'a self, loader: &mut EbpfLoader<'a>) {
        loader
            .set_global("disk_count", &self.disk_count, true)
            .set_global("disk_devices", &self.devices, true)
            .set_global("disk_firsts", &self.firsts, true)
            .set_global("disk_ends", &self.ends, true)
            .set_global("wanted_operations", &self.operations, true)
            .set_global("length_count", &self.length_count, true)
            .set_global("lengths", &self.lengths, true)
            .set_global("alignment_count", &self.alignment_count, true)
            .set_global("alignments", &self.alignments, true)
            .set_global("comm_count", &self.comm_count, true)
            .set_global("comms", &self.comms, true)
            .set_global("own_cgroup", &self.own_cgroup, true)
            .set_global("by_comm", &self.by_comm, true)
            .set_global("with_latency", &self.latency, true)
            .set_global("with_events", &self.events, true);
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn filled<T: Default + Copy, const N: usize>(values: impl Iterator<Item = T>) -> [T; N] {
    let mut array = [T::default(); N];
    for (place, value) in array.iter_mut().zip(values) {
        *place = value;
    }
    array
}

/// CPUs that there may ever be: their numbers go from 0 to this.
fn possible_cpus() -> u32 {
    aya::util::nr_cpus().map_or(1, count).max(1)
}
