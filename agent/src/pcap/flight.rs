//! Segments that were sent once and not acknowledged yet, for the time that this takes.

use std::collections::VecDeque;

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
