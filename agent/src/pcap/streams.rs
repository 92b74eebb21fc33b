//! All connections of a capture, in memory that grows with their number and not with that of packets.

use std::collections::HashMap;

use serde::Serialize;

use super::direction::{Direction, Limits, Totals};
use super::input::{ACK, Endpoint, SYN, Segment};

const MOST: usize = 100_000;

/// What is said of a connection. `ends`: the sender of the first segment that was seen, and the other one.
#[derive(Debug, Serialize)]
pub struct Connection {
    pub ends: [Endpoint; 2],
    pub opener: Option<usize>,
    /// In ns.
    pub first: i64,
    pub last: i64,
    /// What each of `ends` sent.
    pub ways: [Totals; 2],
}

struct Stream {
    ends: [Endpoint; 2],
    opener: Option<usize>,
    first: i64,
    last: i64,
    ways: [Direction; 2],
}

pub struct Streams {
    all: Vec<Stream>,
    known: HashMap<[Endpoint; 2], usize>, // the lesser end first → the newest connection between them
    newest: Option<usize>,                // packets of one connection mostly follow each other
    limits: Limits,
    left_out: u64, // segments of those for which there was no more room
}

impl Default for Streams {
    fn default() -> Self {
        Self { all: vec![], known: HashMap::new(), newest: None, limits: Limits::of(0), left_out: 0 }
    }
}

impl Streams {
    pub fn add(&mut self, segment: &Segment) {
        let Some(number) = self.number(segment) else {
            self.left_out += 1;
            return;
        };
        let stream = &mut self.all[number];
        let side = usize::from(stream.ends[0] != segment.from);
        stream.first = stream.first.min(segment.time);
        stream.last = stream.last.max(segment.time);
        let [one, two] = &mut stream.ways;
        let (own, other) = if side == 0 { (one, two) } else { (two, one) };
        if segment.is(SYN) {
            own.first_sequence = Some(segment.sequence);
            stream.opener = Some(if segment.is(ACK) { 1 - side } else { side });
        }
        own.add(segment, other, self.limits);
    }

    /// Which connection it is of: another one where ports are used again. None where there are too many.
    fn number(&mut self, segment: &Segment) -> Option<usize> {
        let ends = [segment.from, segment.to];
        let opens = segment.is(SYN) && !segment.is(ACK);
        if let Some(number) = self.newest.filter(|number| !opens && is_between(&self.all[*number].ends, ends))
        {
            return Some(number);
        }
        let key = [ends[0].min(ends[1]), ends[0].max(ends[1])];
        let known = self.known.get(&key).copied().filter(|number| {
            let stream = &self.all[*number];
            let side = usize::from(stream.ends[0] != segment.from);
            !opens || stream.ways[side].first_sequence == Some(segment.sequence)
        });
        let number = match known {
            Some(number) => number,
            None if self.all.len() < MOST => self.begin(key, segment),
            None => return None,
        };
        self.newest = Some(number);
        Some(number)
    }

    fn begin(&mut self, key: [Endpoint; 2], segment: &Segment) -> usize {
        let number = self.all.len();
        self.known.insert(key, number);
        self.all.push(Stream {
            ends: [segment.from, segment.to],
            opener: None,
            first: segment.time,
            last: segment.time,
            ways: Default::default(),
        });
        self.limits = Limits::of(self.all.len());
        number
    }

    /// All connections, and how many segments are of none of them.
    pub fn finish(self) -> (Vec<Connection>, u64) {
        let connections = self.all.into_iter().map(|stream| {
            let Stream { ends, opener, first, last, ways: [mut one, mut two] } = stream;
            one.finish(&two);
            two.finish(&one);
            Connection { ends, opener, first, last, ways: [one.totals, two.totals] }
        });
        (connections.collect(), self.left_out)
    }
}

fn is_between(ends: &[Endpoint; 2], [from, to]: [Endpoint; 2]) -> bool {
    (ends[0] == from && ends[1] == to) || (ends[0] == to && ends[1] == from)
}
