//! Waiting for devices: the kernel finds them while init is already running.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::error::InitError;

const GIVE_UP: Duration = Duration::from_secs(30);
const INTERVAL: Duration = Duration::from_millis(3);

/// Looks until `find` finds it. `present` tells what there is, for the one who has to find out why it is missing.
pub fn until<T>(
    what: &str,
    mut find: impl FnMut() -> Option<T>,
    present: impl FnOnce() -> Vec<String>,
) -> Result<T, InitError> {
    let start = Instant::now();
    loop {
        if let Some(found) = find() {
            return Ok(found);
        }
        if start.elapsed() > GIVE_UP {
            let mut present = present().join(", ");
            if present.is_empty() {
                present.push_str("none");
            }
            return Err(InitError::Missing { what: what.into(), seconds: GIVE_UP.as_secs(), present });
        }
        sleep(INTERVAL);
    }
}
