//! The virtio-serial port to the host. Source: the kernel's `drivers/char/virtio_console.c`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use super::error::InitError;
use super::wait;

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
