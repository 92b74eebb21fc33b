//! How long an agent lives that hears nothing: a link that was cut closes no stream for minutes or hours.

use crate::clock::{self, SECOND};
use crate::processes::Guard;

/// How often the guard is told, at most.
const TELL_NS: u64 = SECOND;

/// What a controller asked for in its `hello`.
#[derive(Debug)]
pub struct Lease {
    length: u64,
    heard_at: u64,
    told_at: u64,
}

impl Lease {
    /// Runs from now on, for so many nanoseconds each time.
    pub fn new(length: u64) -> Self {
        Self { length, heard_at: clock::monotonic_ns(), told_at: 0 }
    }

    /// When it ends, on `CLOCK_MONOTONIC`.
    pub fn ends_at(&self) -> u64 {
        self.heard_at.saturating_add(self.length)
    }

    /// The controller lives. The guard learns of it, too: it ends an agent that stands still itself.
    pub fn renew(&mut self, guard: Option<&mut Guard>) {
        self.heard_at = clock::monotonic_ns();
        if self.heard_at.saturating_sub(self.told_at) >= TELL_NS {
            self.told_at = self.heard_at;
            if let Some(guard) = guard {
                guard.expect_again_within(self.length);
            }
        }
    }

    pub fn seconds(&self) -> u64 {
        self.length / SECOND
    }
}
