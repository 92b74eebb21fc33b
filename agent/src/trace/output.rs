//! What goes out: JSON lines, as `docs/reference/trace-output.md` has them.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::counters::{self, Bin, Counts, ISSUER_KERNEL, ISSUER_OWN, Request, Tally, UNITS};
use super::disks::Names;
use super::names;
use crate::clock;

/// The first line.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename = "started")]
pub struct Started<'a> {
    /// `btf` or `tracepoint`.
    pub hook: &'static str,
    /// Why not `btf`.
    pub reason: Option<&'a str>,
    /// Names that were asked for; none: all.
    pub disks: &'a [String],
    pub latency: bool,
    /// Events that this kernel can't tell.
    pub without: &'a [&'static str],
    pub monotonic_ns: u64,
    pub realtime_ns: u64,
}

/// Disk, operation, flags, length, alignment of the offset, command, count, units touched.
pub type RequestRow<'a> = (String, &'static str, String, u32, u64, Option<&'a str>, u64, [u64; UNITS]);

/// Disk, operation, which time, lower and upper bound in ns, count.
pub type LatencyRow = (String, &'static str, &'static str, u64, u64, u64);

#[derive(Debug, Serialize)]
#[serde(tag = "event", rename = "counts")]
pub struct CountsLine<'a> {
    #[serde(rename = "final")]
    pub last: bool,
    pub monotonic_ns: u64,
    pub realtime_ns: u64,
    /// Requests of each shape.
    pub requests: Vec<RequestRow<'a>>,
    /// Of these, what the group that was named issued.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub own: Vec<RequestRow<'a>>,
    /// Of these, what threads of the kernel issued; only where a group was named.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kernel: Vec<RequestRow<'a>>,
    /// Times of all requests.
    pub latency: Vec<LatencyRow>,
    /// Of these, those of the group that was named.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub own_latency: Vec<LatencyRow>,
    /// Of these, those of threads of the kernel; only where a group was named.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kernel_latency: Vec<LatencyRow>,
    pub others: Vec<(String, &'static str, &'static str, u64)>,
    /// Requests whose end was not seen; at the end, where times are measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<u64>,
    pub lost: Lost,
}

#[derive(Debug, Serialize)]
pub struct Lost {
    pub full: u64,
    /// A program was already running on that CPU; `None` where the kernel doesn't count that.
    pub missed: Option<u64>,
    pub untimed: u64,
    /// Single events that nobody read in time.
    pub events: u64,
    /// Counted, but without the name of their command.
    pub comms: u64,
}

impl<'a> CountsLine<'a> {
    /// `counts` with names in place of numbers, in the order of the numbers.
    pub fn new(
        counts: &'a Counts,
        disks: &mut Names,
        missed: Option<u64>,
        last: bool,
        in_flight: Option<u64>,
    ) -> Self {
        Self {
            last,
            monotonic_ns: clock::monotonic_ns(),
            realtime_ns: clock::realtime_ns(),
            requests: rows(&counts.requests, counts, disks),
            own: rows(&counts.own, counts, disks),
            kernel: rows(&counts.kernel, counts, disks),
            latency: times(counts, disks, None),
            own_latency: times(counts, disks, Some(ISSUER_OWN)),
            kernel_latency: times(counts, disks, Some(ISSUER_KERNEL)),
            others: sorted(&counts.others)
                .into_iter()
                .map(|(bin, count)| {
                    (disks.of(bin.device), names::operation(bin.operation), names::other(bin.bin), count)
                })
                .collect(),
            in_flight,
            lost: Lost {
                full: counts.lost.full,
                missed,
                untimed: counts.lost.untimed,
                events: counts.lost.events,
                comms: counts.lost.comms,
            },
        }
    }
}

fn rows<'a>(
    requests: &HashMap<Request, Tally>,
    counts: &'a Counts,
    disks: &mut Names,
) -> Vec<RequestRow<'a>> {
    let mut requests: Vec<_> = requests.iter().collect();
    requests.sort_unstable_by_key(|(request, _)| *request);
    requests
        .into_iter()
        .map(|(request, tally)| {
            (
                disks.of(request.device),
                names::operation(request.operation),
                names::flags(request.flags),
                request.length,
                request.offset_alignment,
                counts.comms.get(&request.comm).map(String::as_str),
                tally.count,
                tally.units,
            )
        })
        .collect()
}

/// Of everybody's requests, or those of one issuer.
fn times(counts: &Counts, disks: &mut Names, issuer: Option<u32>) -> Vec<LatencyRow> {
    let mut rows = vec![];
    for (which, bins) in [("service", &counts.service), ("queued", &counts.queued)] {
        let mut sums = BTreeMap::<_, u64>::new();
        for (bin, count) in bins.iter().filter(|(bin, _)| issuer.is_none_or(|wanted| bin.issuer == wanted)) {
            *sums.entry((bin.device, bin.operation, bin.bin)).or_default() += count;
        }
        rows.extend(sums.into_iter().map(|((device, operation, bin), count)| {
            let (lower, upper) = counters::bounds(bin);
            (disks.of(device), names::operation(operation), which, lower, upper, count)
        }));
    }
    rows
}

fn sorted(bins: &HashMap<Bin, u64>) -> Vec<(Bin, u64)> {
    let mut sorted: Vec<_> = bins.iter().map(|(bin, count)| (*bin, *count)).collect();
    sorted.sort_unstable();
    sorted
}

/// One request as it was issued: disk, operation, flags, length, sector, process, command, `CLOCK_MONOTONIC` in ns.
pub type Event<'a> = (&'a str, &'static str, String, u32, u64, u32, &'a str, u64);
