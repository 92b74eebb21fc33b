//! Bytes of a stream that a capture lacks: holes between the numbers of its segments, as long as nothing fills them.

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
