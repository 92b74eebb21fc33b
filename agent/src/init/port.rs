//! The virtio-serial port to the host. Source: the kernel's `drivers/char/virtio_console.c`.

use super::error::InitError;
use super::wait;
use crate::clock::SECOND;
use crate::sys;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_settime};
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

const PORTS: &str = "/sys/class/virtio-ports";

/// The open port. The kernel lets nobody else open it, and throws away what has come in when it is closed: so it
/// is never closed, but handed to the agent.
pub struct Port {
    file: File,
    changes: Epoll,
}

impl Port {
    /// Opens the port of this name. Waits for it where it isn't there yet.
    pub fn open(name: &str) -> Result<Self, InitError> {
        let find = || {
            let (device, _) = names(Path::new(PORTS)).into_iter().find(|(_, found)| found == name)?;
            Some(Path::new("/dev").join(device)).filter(|device| device.exists())
        };
        let present = || names(Path::new(PORTS)).into_iter().map(|(_, name)| name).collect();
        let path: PathBuf = wait::until(&format!("the virtio-serial port {name}"), find, present)?;
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(&path);
        let file = file.map_err(InitError::file("open the port", &path))?;
        let watch = || -> Result<Epoll, Errno> {
            let changes = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
            // Only changes are reported: while the host's end is closed, the port is hung up all the time.
            let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLET;
            changes.add(&file, EpollEvent::new(flags, 0))?;
            Ok(changes)
        };
        let changes = watch().map_err(InitError::system("watch the port to the host"))?;
        Ok(Self { file, changes })
    }

    /// Sleeps until the host has opened its end. Nothing wakes meanwhile, so this is where a guest can be saved.
    pub fn wait_for_host(&self) -> Result<(), InitError> {
        while self.is_hung_up()? {
            self.wait_for_change()?;
        }
        Ok(())
    }

    /// Reads exactly this much; what follows stays in the port.
    pub fn read_exactly(&mut self, buffer: &mut [u8]) -> Result<(), InitError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.file.read(&mut buffer[filled..]) {
                Ok(0) => return Err(InitError::HostGone),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait_for_change()?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(InitError::Port(error)),
            }
        }
        Ok(())
    }

    pub fn into_file(self) -> File {
        self.file
    }

    fn is_hung_up(&self) -> Result<bool, InitError> {
        let mut fds = [PollFd::new(self.file.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).map_err(InitError::system("look at the port to the host"))?;
        Ok(fds[0].revents().is_some_and(|events| events.contains(PollFlags::POLLHUP)))
    }

    fn wait_for_change(&self) -> Result<(), InitError> {
        match self.changes.wait(&mut [EpollEvent::empty()], EpollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(InitError::System { action: "wait for the host", errno }),
        }
    }
}

/// Device and name of each port that has a name.
fn names(ports: &Path) -> Vec<(String, String)> {
    let Ok(ports) = fs::read_dir(ports) else { return Vec::new() };
    let name = |port: fs::DirEntry| {
        let name = fs::read_to_string(port.path().join("name")).ok()?;
        Some((port.file_name().into_string().ok()?, name.trim().to_owned()))
    };
    ports.filter_map(Result::ok).filter_map(name).collect()
}

// What makes a guest one of a kind: fresh random numbers and the right time, the first bytes that the host sends.
//
// Guests that were restored from one saved state would otherwise all draw the same random numbers, among them the
// `boot_id`, which the kernel draws when it is first read; and live in the past. Source: `random(4)`, the kernel's
// `drivers/char/random.c`.

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
