//! What one end of a connection sent, added up segment by segment.
//!
//! Numbers of sequence are 32 bits wide and wrap: each is taken relative to the newest before it, so that any number of
//! GiB can go by.

use serde::Serialize;

use super::input::{ACK, FIN, RST, SYN, Segment};
use super::kept::Counts;
use super::kept::Flight;
use super::kept::Holes;

/// ns: Linux delays an ACK by 40 to 200 ms.
const DELAYED: std::ops::RangeInclusive<i64> = 35_000_000..=300_000_000;
/// Of gaps between ACKs, for each factor of two, from 1 µs on.
const BINS: f64 = 8.0;
const HIGHEST_BIN: f64 = 27.0 * BINS; // 134 s
const LONGEST: u32 = 1 << 24; // bytes: lengths and advances beyond are not remembered
const FAR: i64 = 1 << 62; // ns: a sum stays there

/// How much may be remembered of one direction.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub holes: usize,
    pub flight: usize,
    pub counts: usize,
}

impl Limits {
    /// Of each of so many connections: the more there are, the less each may take.
    pub fn of(connections: usize) -> Self {
        let share = |all: usize, least, most| (all / (2 * connections.max(1))).clamp(least, most);
        Self {
            holes: share(1 << 20, 16, 1024),
            flight: share(1 << 20, 16, 8192),
            counts: share(1 << 20, 32, 4096),
        }
    }
}

/// What is said of a direction. Times in ns.
#[derive(Debug, Default, Serialize)]
pub struct Totals {
    pub packets: u64,
    pub segments: u64,
    pub bytes: u64,
    pub acks: u64,
    /// ACKs of which it is known how much they acknowledge.
    pub advancing: u64,
    /// Bytes, by these.
    pub advanced: u64,
    pub retransmits: u64,
    pub bytes_again: u64,
    pub overtaken: u64,
    pub sacks: u64,
    pub dsacks: u64,
    pub zero_windows: u64,
    pub delayed: u64,
    pub delayed_ns: i64,
    pub rtt_count: u64,
    pub rtt_sum: i64,
    pub rtt_most: i64,
    /// Bytes that the capture lacks.
    pub missing: u64,
    pub mss_option: u16,
    pub stamped: bool,
    pub closed: bool,
    pub lengths: Counts,
    pub advances: Counts,
    /// Bin → number of gaps between its ACKs.
    pub gaps: Counts,
}

#[derive(Debug, Default)]
pub struct Direction {
    pub totals: Totals,
    pub first_sequence: Option<Option<u32>>,
    next: Option<u32>, // the sequence number after the newest
    place: i64,        // the same, in bytes since the first that was seen
    newest_ack: Option<u32>,
    last_data: Option<i64>,
    last_ack: Option<i64>,
    holes: Holes,
    flight: Flight,
}

impl Direction {
    /// One more segment of this end's. `other`: what the other end sent.
    pub fn add(&mut self, segment: &Segment, other: &mut Self, limits: Limits) {
        let has_data = segment.length > 0;
        let is_ack = segment.is(ACK) && !segment.is(RST);
        let is_pure = is_ack && !has_data && !segment.is(SYN | FIN);
        if let Some(sequence) = segment.sequence.filter(|_| !segment.is(RST)) {
            self.sequence(segment, sequence, limits); // a reset's number may be anything
        }
        let advance = if is_ack { self.acknowledge(segment.acknowledged) } else { None };
        if is_pure {
            self.pure(segment, advance, other.last_data, limits);
        }
        if advance.is_some_and(|bytes| bytes > 0)
            && let Some(took) = other.flight.acknowledged(segment.acknowledged, segment.time)
        {
            other.totals.round_trip(took);
        }
        if has_data {
            self.last_data = Some(segment.time);
        }
        self.totals.add(segment, is_ack, limits);
    }

    /// Holes, and what came again.
    fn sequence(&mut self, segment: &Segment, sequence: u32, limits: Limits) {
        let next = *self.next.get_or_insert(sequence);
        let relative = i64::from(sequence.wrapping_sub(next) as i32);
        let (length, time) = (i64::from(segment.length), segment.time);
        let taken = length + i64::from(segment.is(SYN)) + i64::from(segment.is(FIN));
        let begin = self.place + relative;
        let is_probe = length <= 1 && relative == -1 && taken == length; // whether the other end is still alive
        if relative > 0 {
            self.holes.open(self.place, begin, time, limits.holes);
        } else if length > 0 && relative < 0 && !is_probe {
            if self.holes.fill(begin, begin + length, time, limits.holes) {
                self.totals.overtaken += 1;
            } else {
                self.totals.retransmits += 1;
                self.totals.bytes_again += u64::from(segment.length);
            }
        }
        let moved = (relative + taken).max(0);
        let after = next.wrapping_add(moved as u32);
        if length > 0 && relative >= 0 {
            self.flight.sent(after, time, limits.flight);
        }
        self.next = Some(after);
        self.place += moved;
    }

    /// How far an ACK goes beyond all before it; none for the first.
    fn acknowledge(&mut self, number: u32) -> Option<u32> {
        let newest = self.newest_ack.replace(number)?;
        let advance = number.wrapping_sub(newest) as i32;
        if advance < 0 {
            self.newest_ack = Some(newest);
        }
        Some(advance.max(0) as u32)
    }

    /// An ACK without data.
    fn pure(&mut self, segment: &Segment, advance: Option<u32>, newest_data: Option<i64>, limits: Limits) {
        let totals = &mut self.totals;
        totals.acks += 1;
        if let Some(last) = self.last_ack.replace(segment.time) {
            totals.gap(segment.time.saturating_sub(last), limits);
        }
        let Some(bytes) = advance else { return };
        totals.advancing += 1;
        totals.advanced += u64::from(bytes);
        if (1..LONGEST).contains(&bytes) {
            totals.advances.add(bytes, limits.counts);
        }
        let waited = newest_data.filter(|data| *data > 0).map(|data| segment.time.saturating_sub(data));
        if let Some(took) = waited.filter(|took| bytes > 0 && DELAYED.contains(took)) {
            totals.delayed += 1; // so late that a timer must have sent it
            totals.delayed_ns = totals.delayed_ns.saturating_add(took).min(FAR);
        }
    }

    /// What was acknowledged, and comes after all that was captured, is missing as well.
    pub fn finish(&mut self, other: &Self) {
        if let (Some(next), Some(acknowledged)) = (self.next, other.newest_ack) {
            let beyond = acknowledged.wrapping_sub(next) as i32;
            self.holes.close(u64::try_from(beyond).unwrap_or(0));
        }
        self.totals.missing = self.holes.missing();
    }
}

impl Totals {
    fn add(&mut self, segment: &Segment, is_ack: bool, limits: Limits) {
        self.packets += 1;
        self.segments += u64::from(segment.length > 0);
        self.bytes += u64::from(segment.length);
        self.sacks += u64::from(segment.sacks > 0);
        self.dsacks += u64::from(segment.dsack);
        self.zero_windows += u64::from(segment.window == 0 && is_ack && !segment.is(SYN));
        self.stamped |= segment.stamped;
        self.closed |= segment.is(FIN | RST);
        if (1..LONGEST).contains(&segment.length) {
            self.lengths.add(segment.length, limits.counts);
        }
        if segment.is(SYN) && self.mss_option == 0 {
            self.mss_option = segment.mss;
        }
    }

    fn round_trip(&mut self, took: i64) {
        self.rtt_count += 1;
        self.rtt_sum = self.rtt_sum.saturating_add(took).min(FAR);
        self.rtt_most = self.rtt_most.max(took.min(FAR));
    }

    fn gap(&mut self, ns: i64, limits: Limits) {
        if ns >= 0 {
            let bin = ((ns.max(1000) as f64 / 1000.0).log2() * BINS).floor().clamp(0.0, HIGHEST_BIN);
            self.gaps.add(bin as u32, limits.counts.max(HIGHEST_BIN as usize + 1));
        }
    }
}
