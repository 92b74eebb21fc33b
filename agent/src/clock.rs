//! The node's clocks, in nanoseconds. Source: `clock_gettime(2)`.

use nix::time::{ClockId, clock_getres, clock_gettime};

pub const SECOND: u64 = 1_000_000_000;
pub const MILLISECOND: u64 = 1_000_000;

/// `CLOCK_MONOTONIC`, on which all deadlines are.
pub fn monotonic_ns() -> u64 {
    read(ClockId::CLOCK_MONOTONIC)
}

/// `CLOCK_REALTIME`: nanoseconds since 1970.
pub fn realtime_ns() -> u64 {
    read(ClockId::CLOCK_REALTIME)
}

/// What `CLOCK_MONOTONIC` can tell apart.
pub fn resolution_ns() -> u64 {
    clock_getres(ClockId::CLOCK_MONOTONIC).map_or(0, nanoseconds)
}

fn read(clock: ClockId) -> u64 {
    // Both clocks exist on every Linux; the call has no other way to fail.
    clock_gettime(clock).map(nanoseconds).unwrap_or_default()
}

fn nanoseconds(time: nix::sys::time::TimeSpec) -> u64 {
    u64::try_from(time.tv_sec()).unwrap_or_default() * SECOND
        + u64::try_from(time.tv_nsec()).unwrap_or_default()
}
