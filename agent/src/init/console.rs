//! What a guest's init says, line by line on the kernel's console.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

/// Says one sentence. Where there is no console, nobody could be told of that either.
pub fn say(sentence: impl Display) {
    // Opened again each time: it is the same path before and after the root file system is switched.
    if let Ok(mut console) = OpenOptions::new().write(true).custom_flags(libc::O_NOCTTY).open("/dev/console")
    {
        let _ = console.write_all(format!("storlab-init: {sentence}\n").as_bytes());
    }
}
