//! What the programs have counted so far, out of their maps. The layouts are those of `bpf/counters.h`.

use super::disks::Names;
use super::names;
use super::output::Event;
use aya::maps::{Array, HashMap as BpfHashMap, MapData, MapError, RingBuf};
use aya::{Ebpf, Pod};
use std::collections::HashMap;
use std::io;
use std::io::Write;

/// Sizes of units whose touched numbers are counted: 4k, 8k, 16k, 32k, 64k.
pub const UNITS: usize = 5;

const IN_USE: u64 = 1 << 63;
const KIND_REQUEST: u64 = 1;
const KIND_REQUEUED: u64 = 2;
const KIND_SERVICE: u64 = 3;
const KIND_QUEUED: u64 = 4;
const KIND_OWN: u64 = 6;
const KIND_KERNEL: u64 = 7;

/// Who issued what a histogram is of; anybody else is 0.
pub const ISSUER_OWN: u32 = 1;
/// A thread of the kernel.
pub const ISSUER_KERNEL: u32 = 2;
const ISSUER_NOBODY: u64 = 3;
/// Who it is stands in the upper bits of the time of a request's issue.
const ISSUER_SHIFT: u32 = 62;
/// Bins of an octave, which lie side by side.
const BIN_STEPS: usize = 16;
/// Where the number of a bin is in its key.
const BIN_SHIFT: u32 = 49;

type RequestSet = [[u64; 3 + UNITS]; 4];
type BinSet = [[u64; 1 + BIN_STEPS]; 4];
type FlightSet = [[u64; 2]; 4];

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Request {
    pub device: u32,
    pub operation: u32,
    pub flags: u32,
    /// Number of the command's name; 0: none.
    pub comm: u32,
    /// Bytes.
    pub length: u32,
    /// The lowest bit of the offset in bytes; 0 where it is aligned to more than any length can be.
    pub offset_alignment: u64,
}

/// How many there were, and how many units they touched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    pub count: u64,
    /// Of each size.
    pub units: [u64; UNITS],
}

/// A bin of a histogram, or a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Bin {
    pub device: u32,
    pub operation: u32,
    pub bin: u64,
    /// Of times, whose requests: 0 also where no group was named.
    pub issuer: u32,
}

/// What was not counted as it should have been.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lost {
    pub full: u64,
    pub untimed: u64,
    pub events: u64,
    /// Counted without the command's name.
    pub comms: u64,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Each once, however often it was requeued, as it was first issued.
    pub requests: HashMap<Request, Tally>,
    /// Of these, what tasks of the group that was named issued.
    pub own: HashMap<Request, Tally>,
    /// Of these, what threads of the kernel issued, likewise.
    pub kernel: HashMap<Request, Tally>,
    pub service: HashMap<Bin, u64>,
    pub queued: HashMap<Bin, u64>,
    /// Merges, splits, and so on.
    pub others: HashMap<Bin, u64>,
    pub comms: HashMap<u32, String>,
    pub lost: Lost,
}

/// Reads all maps.
pub fn read(ebpf: &Ebpf) -> Result<Counts, MapError> {
    let mut counts = Counts::default();
    let mut requeued = vec![];
    for set in array::<RequestSet>(ebpf, "REQUESTS")?.iter() {
        for [shape, subject, count, units @ ..] in set? {
            if shape & IN_USE != 0 && subject != 0 {
                counts.add(subject, shape, Tally { count, units }, &mut requeued);
            }
        }
    }
    for set in array::<BinSet>(ebpf, "BINS")?.iter() {
        for [subject, steps @ ..] in set? {
            for (step, count) in (0..).zip(steps).filter(|(_, count)| *count > 0) {
                let subject = (subject & !IN_USE) + (step << BIN_SHIFT);
                counts.add(subject, IN_USE, Tally { count, ..Tally::default() }, &mut requeued);
            }
        }
    }
    let spilled = BpfHashMap::<_, [u64; 2], [u64; 1 + UNITS]>::try_from(map(ebpf, "SPILLED")?)?;
    for entry in spilled.iter() {
        let ([subject, shape], [count, units @ ..]) = entry?;
        counts.add(subject, shape, Tally { count, units }, &mut requeued);
    }
    for entry in BpfHashMap::<_, [u8; 16], u32>::try_from(map(ebpf, "COMMS")?)?.iter() {
        let (name, number) = entry?;
        counts.comms.insert(number, comm_text(&name));
    }
    let lost = array::<u64>(ebpf, "LOST")?;
    counts.lost = Lost {
        full: lost.get(&0, 0)?,
        untimed: lost.get(&1, 0)?,
        events: lost.get(&2, 0)?,
        comms: lost.get(&3, 0)?,
    };
    counts.take_back(&requeued);
    Ok(counts)
}

/// How many requests were counted whose end was not seen.
pub fn in_flight(ebpf: &Ebpf) -> Result<u64, MapError> {
    let mut count = 0;
    for set in array::<FlightSet>(ebpf, "FLIGHTS")?.iter() {
        count += set?.iter().filter(|[_, issued]| is_in_flight(*issued)).count() as u64;
    }
    // Those that came back from the driver and were not issued again yet.
    for entry in BpfHashMap::<_, u64, [u64; 5]>::try_from(map(ebpf, "REQUEUED")?)?.iter() {
        let (_, [_, _, issued, ..]) = entry?;
        count += u64::from(is_in_flight(issued));
    }
    Ok(count)
}

fn is_in_flight(issued: u64) -> bool {
    issued != 0 && issued >> ISSUER_SHIFT != ISSUER_NOBODY
}

/// A command's name, out of the kernel's sixteen bytes.
pub fn comm_text(name: &[u8; 16]) -> String {
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    String::from_utf8_lossy(&name[..end]).into_owned()
}

fn map<'a>(ebpf: &'a Ebpf, name: &'static str) -> Result<&'a aya::maps::Map, MapError> {
    ebpf.map(name).ok_or(MapError::InvalidName { name: name.to_owned() })
}

fn array<'a, T: Pod>(
    ebpf: &'a Ebpf,
    name: &'static str,
) -> Result<Array<&'a aya::maps::MapData, T>, MapError> {
    Array::try_from(map(ebpf, name)?)
}

#[allow(clippy::cast_possible_truncation)] // fields of a few bits
fn low(word: u64, bits: u32) -> u32 {
    (word & ((1 << bits) - 1)) as u32
}

impl Counts {
    fn add(&mut self, subject: u64, shape: u64, tally: Tally, requeued: &mut Vec<(Request, Tally)>) {
        let (device, operation) = (low(subject, 32), low(subject >> 32, 5));
        let bin =
            Bin { device, operation, bin: u64::from(low(subject >> 49, 14)), issuer: low(subject >> 40, 9) };
        match subject >> 37 & 7 {
            kind @ (KIND_REQUEST | KIND_REQUEUED | KIND_OWN | KIND_KERNEL) => {
                let sectors = (shape & !IN_USE) >> 32;
                let request = Request {
                    device,
                    operation,
                    flags: low(subject >> 40, 9),
                    comm: low(subject >> 49, 14),
                    length: low(shape, 32),
                    offset_alignment: if sectors == 1 << 23 { 0 } else { sectors << 9 },
                };
                let of = match kind {
                    KIND_REQUEST => &mut self.requests,
                    KIND_OWN => &mut self.own,
                    KIND_KERNEL => &mut self.kernel,
                    _ => return requeued.push((request, tally)),
                };
                of.entry(request).or_default().change(&tally, u64::wrapping_add);
            }
            KIND_SERVICE => *self.service.entry(bin).or_default() += tally.count,
            KIND_QUEUED => *self.queued.entry(bin).or_default() += tally.count,
            _ => *self.others.entry(bin).or_default() += tally.count,
        }
    }

    /// Of requests that were merged after they had been issued and requeued, what was counted of them before. In place of
    /// a command each has its issuer. Which command it was is not known: it is taken from them in their order.
    fn take_back(&mut self, requeued: &[(Request, Tally)]) {
        for (request, tally) in requeued {
            take_from(&mut self.requests, request, *tally);
            match request.comm {
                ISSUER_OWN => take_from(&mut self.own, request, *tally),
                ISSUER_KERNEL => take_from(&mut self.kernel, request, *tally),
                _ => {}
            }
        }
    }
}

/// Of any command.
fn take_from(counted: &mut HashMap<Request, Tally>, request: &Request, mut rest: Tally) {
    let same = |known: &Request| Request { comm: request.comm, ..known.clone() } == *request;
    let mut found: Vec<_> = counted.iter_mut().filter(|(known, _)| same(known)).collect();
    found.sort_unstable_by_key(|(known, _)| *known);
    for (_, issued) in found {
        if issued.count >= rest.count {
            issued.change(&rest, u64::wrapping_sub);
            break;
        }
        rest.change(issued, u64::wrapping_sub);
        *issued = Tally::default();
    }
    counted.retain(|_, tally| tally.count > 0);
}

impl Tally {
    fn change(&mut self, other: &Self, how: fn(u64, u64) -> u64) {
        self.count = how(self.count, other.count);
        for (mine, theirs) in self.units.iter_mut().zip(other.units) {
            *mine = how(*mine, theirs);
        }
    }
}

/// The bounds of a bin, in nanoseconds or bytes, the upper one outside; see `bin_of` in `bpf/bins.h`.
pub fn bounds(bin: u64) -> (u64, u64) {
    let (octave, step) = (bin >> 4, bin & 15);
    if octave == 0 {
        return (step, step + 1);
    }
    let width = 1 << (octave - 1).min(58);
    let lower = (16 + step).saturating_mul(width);
    (lower, lower.saturating_add(width))
}

// Single events out of the ring buffer. The layout is that of `struct event` in `bpf/subject.h`.

/// Writes all events that are there, a line each, and tells how many.
pub fn drain(ring: &mut RingBuf<MapData>, disks: &mut Names, out: &mut impl Write) -> io::Result<u64> {
    let mut count = 0;
    while let Some(item) = ring.next() {
        if let Some(event) = Raw::parse(&item) {
            let disk = disks.of(event.device);
            let comm = comm_text(&event.comm);
            let operation = names::operation(u32::from(event.operation));
            let flags = names::flags(u32::from(event.flags));
            let line: Event =
                (&disk, operation, flags, event.length, event.sector, event.pid, &comm, event.time);
            serde_json::to_writer(&mut *out, &line)?;
            out.write_all(b"\n")?;
            count += 1;
        }
    }
    Ok(count)
}

#[derive(Debug, PartialEq, Eq)]
struct Raw {
    time: u64,
    sector: u64,
    device: u32,
    length: u32,
    pid: u32,
    operation: u16,
    flags: u16,
    comm: [u8; 16],
}

impl Raw {
    fn parse(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            time: u64::from_ne_bytes(field(bytes, 0)?),
            sector: u64::from_ne_bytes(field(bytes, 8)?),
            device: u32::from_ne_bytes(field(bytes, 16)?),
            length: u32::from_ne_bytes(field(bytes, 20)?),
            pid: u32::from_ne_bytes(field(bytes, 24)?),
            operation: u16::from_ne_bytes(field(bytes, 28)?),
            flags: u16::from_ne_bytes(field(bytes, 30)?),
            comm: field(bytes, 32)?,
        })
    }
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bin_of(ns: u64) -> u64 {
        let octave = u64::from(64 - (ns >> 4).leading_zeros());
        if octave == 0 { ns } else { (octave << 4) + (ns >> (octave - 1) & 15) }
    }

    #[test]
    fn bins_follow_each_other_without_gap_and_are_narrow() {
        let mut end = 0;
        for bin in 0..16 * 50 {
            let (lower, upper) = bounds(bin);
            assert_eq!(lower, end);
            assert!(bin_of(lower) == bin && bin_of(upper - 1) == bin, "{bin}");
            assert!(upper - lower <= 1.max(lower / 16), "{bin}");
            end = upper;
        }
    }

    #[test]
    fn what_is_counted_once_more_is_taken_back_from_one_command_after_the_other_and_from_its_issuer() {
        let request =
            |comm| Request { device: 1, operation: 1, flags: 0, comm, length: 4096, offset_alignment: 512 };
        let tally = |count| Tally { count, units: [count; UNITS] };
        for _ in 0..20 {
            let mut counts = Counts::default();
            for of in [&mut counts.requests, &mut counts.own, &mut counts.kernel] {
                of.extend([(request(1), tally(2)), (request(2), tally(3)), (request(3), tally(9))]);
            }
            counts.take_back(&[(request(0), tally(3)), (request(ISSUER_KERNEL), tally(1))]);
            let left = |of: &HashMap<Request, Tally>| {
                let mut left: Vec<_> =
                    of.iter().map(|(key, tally)| (key.comm, tally.count, tally.units[0])).collect();
                left.sort_unstable();
                left
            };
            assert_eq!(left(&counts.requests), [(2, 1, 1), (3, 9, 9)]);
            assert_eq!(left(&counts.own), [(1, 2, 2), (2, 3, 3), (3, 9, 9)]);
            assert_eq!(left(&counts.kernel), [(1, 1, 1), (2, 3, 3), (3, 9, 9)]);
        }
    }

    #[test]
    fn what_was_left_out_is_in_flight_for_nobody() {
        assert!(is_in_flight(1) && is_in_flight(5 | u64::from(ISSUER_KERNEL) << ISSUER_SHIFT));
        assert!(!is_in_flight(0) && !is_in_flight(5 | ISSUER_NOBODY << ISSUER_SHIFT));
    }

    #[test]
    fn a_key_is_taken_apart() {
        let mut counts = Counts::default();
        let subject = 7 << 20 | 3 | 1 << 32 | KIND_REQUEST << 37 | 0b1100 << 40 | 5 << 49;
        counts.add(subject, IN_USE | 8 << 32 | 16384, Tally { count: 9, units: [0; UNITS] }, &mut vec![]);
        let (request, tally) = counts.requests.iter().next().unwrap();
        let expected = Request {
            device: 7 << 20 | 3,
            operation: 1,
            flags: 12,
            comm: 5,
            length: 16384,
            offset_alignment: 4096,
        };
        assert_eq!((request, tally.count), (&expected, 9));
    }

    #[test]
    fn who_issued_a_request_is_counted_beside_it() {
        let mut counts = Counts::default();
        for (kind, count) in [(KIND_REQUEST, 9), (KIND_OWN, 4), (KIND_KERNEL, 3)] {
            let tally = Tally { count, units: [0; UNITS] };
            counts.add(1 | kind << 37, IN_USE | 8 << 32 | 4096, tally, &mut vec![]);
        }
        let total = |of: &HashMap<Request, Tally>| of.values().map(|tally| tally.count).sum::<u64>();
        assert_eq!((total(&counts.requests), total(&counts.own), total(&counts.kernel)), (9, 4, 3));
    }
}

#[cfg(test)]
mod tests_of_events {
    use super::*;

    #[test]
    fn an_event_that_was_cut_off_is_none() {
        assert_eq!(Raw::parse(&[0; 47]), None);
        assert!(Raw::parse(&[0; 48]).is_some());
    }
}
