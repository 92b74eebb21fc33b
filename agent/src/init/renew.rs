//! What makes a guest one of a kind: fresh random numbers and the right time, the first bytes that the host sends.
//!
//! Guests that were restored from one saved state would otherwise all draw the same random numbers, among them the
//! `boot_id`, which the kernel draws when it is first read; and live in the past. Source: `random(4)`, the kernel's
//! `drivers/char/random.c`.

use std::fs::OpenOptions;

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_settime};

use super::error::InitError;
use crate::clock::SECOND;
use crate::sys;

pub const MAGIC: &[u8; 16] = b"storlab-renew/1\n";
/// Bytes of randomness that the host sends.
pub const ENTROPY: usize = 64;
pub const LENGTH: usize = MAGIC.len() + 8 + ENTROPY;

/// What the host sends before anything else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preamble {
    /// The host's `CLOCK_REALTIME`.
    pub realtime_ns: u64,
    pub entropy: [u8; ENTROPY],
}

impl Preamble {
    /// The magic, 8 bytes of time, big-endian, and the entropy. Nothing where the magic is another.
    pub fn parse(bytes: &[u8; LENGTH]) -> Option<Self> {
        let (time, rest) = bytes.strip_prefix(MAGIC)?.split_first_chunk()?;
        Some(Self { realtime_ns: u64::from_be_bytes(*time), entropy: *rest.first_chunk()? })
    }

    /// Sets the clock and stirs the kernel's random numbers. Nothing may have drawn any that matter before.
    pub fn apply(&self) -> Result<(), InitError> {
        let (seconds, nanoseconds) = (self.realtime_ns / SECOND, self.realtime_ns % SECOND);
        // Both fit: 2^64 ns are less than 2^35 s.
        let time = TimeSpec::new(seconds as i64, nanoseconds as i64);
        clock_settime(ClockId::CLOCK_REALTIME, time).map_err(InitError::system("set the clock"))?;
        let device = "/dev/urandom";
        let random = OpenOptions::new().write(true).open(device).map_err(InitError::file("open", device))?;
        sys::stir_random(&random, &self.entropy).map_err(InitError::file("stir", device))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_the_host_wrote_is_read(realtime_ns: u64, entropy: [u8; ENTROPY]) {
            let bytes = [MAGIC.as_slice(), &realtime_ns.to_be_bytes(), &entropy].concat();
            let bytes: [u8; LENGTH] = bytes.try_into().expect("it has the right length");
            prop_assert_eq!(Preamble::parse(&bytes), Some(Preamble { realtime_ns, entropy }));
        }

        #[test]
        fn a_preamble_that_begins_otherwise_is_refused(mut bytes: [u8; LENGTH], wrong in 0..MAGIC.len()) {
            bytes[..MAGIC.len()].copy_from_slice(MAGIC);
            bytes[wrong] ^= 1;
            prop_assert_eq!(Preamble::parse(&bytes), None);
        }
    }
}
