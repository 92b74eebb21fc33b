//! What is kept of a direction, in memory that has bounds: counts, segments in flight, holes.

use serde::{Serialize, Serializer};
use std::collections::VecDeque;

// How often each of some numbers was seen: few of them, so that they are kept in order and need no hashing.

#[derive(Debug, Default)]
pub struct Counts {
    sorted: Vec<(u32, u64)>,
    newest: usize, // mostly it is the same again
}

impl Counts {
    /// One more of `number`; not where it would be the first of more than `most` different ones.
    pub fn add(&mut self, number: u32, most: usize) {
        if let Some((_, count)) = self.sorted.get_mut(self.newest).filter(|(known, _)| *known == number) {
            *count += 1;
            return;
        }
        match self.sorted.binary_search_by_key(&number, |(known, _)| *known) {
            Ok(at) => {
                self.sorted[at].1 += 1;
                self.newest = at;
            }
            Err(at) if self.sorted.len() < most => {
                self.sorted.insert(at, (number, 1));
                self.newest = at;
            }
            Err(_) => {}
        }
    }
}

impl Serialize for Counts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.sorted.iter().copied())
    }
}

// Segments that were sent once and not acknowledged yet, for the time that this takes.

/// Of one direction of a connection: which sequence number comes after each, and when it was sent.
#[derive(Debug, Default)]
pub struct Flight {
    sent: VecDeque<(u32, i64)>,
}

impl Flight {
    /// A segment of data that none came before. Of too many, the oldest is given up.
    pub fn sent(&mut self, next: u32, time: i64, most: usize) {
        while self.sent.len() >= most {
            self.sent.pop_front();
        }
        self.sent.push_back((next, time));
    }

    /// All up to `number` was acknowledged at `time`: the ns since the segment that ends there, if one does.
    pub fn acknowledged(&mut self, number: u32, time: i64) -> Option<i64> {
        while let Some(&(next, sent)) = self.sent.front() {
            if (number.wrapping_sub(next) as i32) < 0 {
                return None;
            }
            self.sent.pop_front();
            if next == number {
                return Some(time.saturating_sub(sent)).filter(|took| *took >= 0);
            }
        }
        None
    }
}

// Bytes of a stream that a capture lacks: holes between the numbers of its segments, as long as nothing fills them.

const REORDERED: i64 = 3_000_000; // ns: what fills a hole sooner was only overtaken

/// Of one direction of a connection. Places are bytes since the first that was seen.
#[derive(Debug, Default)]
pub struct Holes {
    open: Vec<Hole>, // in their order
    closed: u64,
}

#[derive(Debug, Clone, Copy)]
struct Hole {
    begin: i64,
    end: i64,
    since: i64, // ns
}

impl Hole {
    fn bytes(self) -> u64 {
        self.begin.abs_diff(self.end)
    }
}

impl Holes {
    /// Bytes in all holes.
    pub fn missing(&self) -> u64 {
        self.closed + self.open.iter().map(|hole| hole.bytes()).sum::<u64>()
    }

    /// Bytes that will never come.
    pub fn close(&mut self, bytes: u64) {
        self.closed += bytes;
    }

    /// A segment came, at `time`, that begins at `end`, where `begin` was due.
    pub fn open(&mut self, begin: i64, end: i64, time: i64, most: usize) {
        self.open.push(Hole { begin, end, since: time });
        self.bound(most);
    }

    /// A segment came that is older than the newest. Whether it was merely overtaken: nothing was sent again.
    pub fn fill(&mut self, begin: i64, end: i64, time: i64, most: usize) -> bool {
        let mut at = self.open.partition_point(|hole| hole.end <= begin);
        let mut overtaken = false;
        while let Some(hole) = self.open.get(at).copied().filter(|hole| hole.begin < end) {
            overtaken |= time.saturating_sub(hole.since) < REORDERED;
            let left = (hole.begin < begin).then_some(Hole { end: begin, ..hole });
            let right = (end < hole.end).then_some(Hole { begin: end, ..hole });
            let pieces = left.into_iter().chain(right);
            let count = pieces.clone().count();
            self.open.splice(at..=at, pieces);
            at += count;
        }
        self.bound(most);
        overtaken
    }

    /// What is oldest of too many stays one for good.
    fn bound(&mut self, most: usize) {
        let over = self.open.len().saturating_sub(most);
        self.closed += self.open.drain(..over).map(Hole::bytes).sum::<u64>();
    }
}
