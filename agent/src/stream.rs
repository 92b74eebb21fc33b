//! The byte stream to the controller: the standard streams, a character device, or a Unix socket.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{SetArg, cfmakeraw, tcgetattr, tcsetattr};

/// A stream that can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    #[error("can't open the port {path:?}: {source}")]
    Open { path: std::path::PathBuf, source: io::Error },
    #[error("{0:?} is neither a character device nor a socket")]
    Kind(std::path::PathBuf),
    /// The descriptor can't be made non-blocking.
    #[error("can't prepare the stream: {0}")]
    Prepare(#[from] io::Error),
}

#[derive(Debug)]
pub struct Stream {
    pub input: File,
    pub output: File,
    /// A port on which the other side may come later than the agent.
    waits_for_peer: bool,
    /// Others may share the standard streams, and find them as they were.
    restore: Option<[OFlag; 2]>,
}

impl Stream {
    pub fn standard() -> Result<Self, StreamError> {
        let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let restore = Some([set_nonblocking(&input)?, set_nonblocking(&output)?]);
        Ok(Self { input, output, waits_for_peer: false, restore })
    }

    /// A character device (a virtio-serial port, a serial line) or a Unix socket to connect to.
    pub fn port(path: &Path) -> Result<Self, StreamError> {
        let open = |source| StreamError::Open { path: path.into(), source };
        let kind = path.metadata().map_err(open)?.file_type();
        let input = if kind.is_socket() {
            File::from(OwnedFd::from(UnixStream::connect(path).map_err(open)?))
        } else if kind.is_char_device() {
            let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
            OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).map_err(open)?
        } else {
            return Err(StreamError::Kind(path.into()));
        };
        set_nonblocking(&input)?;
        if input.is_terminal() {
            make_raw(&input)?;
        }
        // epoll watches each descriptor once; two let it watch both directions apart.
        let output = input.try_clone()?;
        Ok(Self { input, output, waits_for_peer: kind.is_char_device(), restore: None })
    }

    /// Hasn't the other side come yet? A virtio-serial port is hung up until the host has opened its end.
    pub fn waits_for_peer(&self) -> bool {
        self.waits_for_peer && self.is_hung_up()
    }

    fn is_hung_up(&self) -> bool {
        let mut fds = [PollFd::new(self.input.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).is_ok()
            && fds[0].revents().is_some_and(|events| {
                events.contains(PollFlags::POLLHUP) && !events.contains(PollFlags::POLLIN)
            })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some([input, output]) = self.restore {
            // The agent ends here; nobody could be told of a failure.
            let _ = fcntl(&self.input, FcntlArg::F_SETFL(input));
            let _ = fcntl(&self.output, FcntlArg::F_SETFL(output));
        }
    }
}

/// Gives the flags that it had before.
pub fn set_nonblocking(fd: impl AsFd) -> io::Result<OFlag> {
    let flags = OFlag::from_bits_retain(fcntl(&fd, FcntlArg::F_GETFL)?);
    fcntl(&fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(flags)
}

/// A serial line must not echo, nor change a byte: `termios(3)`.
fn make_raw(line: &File) -> io::Result<()> {
    let mut settings = tcgetattr(line)?;
    cfmakeraw(&mut settings);
    Ok(tcsetattr(line, SetArg::TCSANOW, &settings)?)
}
