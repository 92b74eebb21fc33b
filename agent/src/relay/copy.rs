//! Passing bytes on, at once or a reply at a time.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Milliseconds without anything more after which a reply counts as whole: what it is made of can't be known without
/// the server's protocol. Longer than a server takes between two writes of one reply, also in an emulated guest.
pub const QUIET: u16 = 5;
/// Bytes that are held of one reply; what is larger comes in several pieces.
pub const LARGEST: usize = 1024 * 1024;
pub(super) const PIECE: usize = 64 * 1024; // bytes

/// Passes on whatever comes, as soon as it comes, until the end; then says so to the other side.
///
/// `head`: so many bytes of each piece are written by themselves. `seen` gets each piece before it is passed on.
pub fn pass_on(
    mut from: &TcpStream,
    to: &TcpStream,
    head: usize,
    mut seen: impl FnMut(&[u8]),
) -> io::Result<()> {
    let mut buffer = vec![0; PIECE];
    let ended = loop {
        match from.read(&mut buffer) {
            Ok(0) => break Ok(()),
            Ok(size) => {
                seen(&buffer[..size]);
                if let Err(error) = write(to, &buffer[..size], head) {
                    break Err(error);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break Err(error),
        }
    };
    hang_up(from, to, ended)
}

/// As [`pass_on`], but a reply at a time, of which nothing is known but that the server pauses after it.
pub fn replies(mut from: &TcpStream, to: &TcpStream, head: usize) -> io::Result<()> {
    let mut buffer = vec![0; LARGEST];
    let ended = loop {
        match reply(&mut from, &mut buffer) {
            Ok(0) => break Ok(()),
            Ok(size) => {
                if let Err(error) = write(to, &buffer[..size], head) {
                    break Err(error);
                }
            }
            Err(error) => break Err(error),
        }
    };
    hang_up(from, to, ended)
}

pub(super) fn write(mut to: &TcpStream, piece: &[u8], head: usize) -> io::Result<()> {
    let (first, rest) = piece.split_at(head.min(piece.len()));
    to.write_all(first)?;
    to.write_all(rest)
}

/// Reads until nothing more comes for a while, or the buffer is full. 0: the server has said all.
fn reply(from: &mut &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    let mut size = 0;
    while size < buffer.len() && (size == 0 || is_readable(from)?) {
        match from.read(&mut buffer[size..]) {
            Ok(0) => break, // its end is found again by whoever reads next
            Ok(more) => size += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(size)
}

fn is_readable(stream: &TcpStream) -> io::Result<bool> {
    let mut waiting = [PollFd::new(stream.as_fd(), PollFlags::POLLIN)];
    loop {
        match poll(&mut waiting, PollTimeout::from(QUIET)) {
            Err(Errno::EINTR) => {}
            result => return Ok(result? > 0),
        }
    }
}

/// The end of one direction is passed on as such; a failure ends both.
pub(super) fn hang_up(from: &TcpStream, to: &TcpStream, ended: io::Result<()>) -> io::Result<()> {
    match ended {
        Ok(()) => {
            let _ = to.shutdown(Shutdown::Write); // which may be gone already
            Ok(())
        }
        Err(error) => {
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
            // Clients that hang up with something underway are nothing new.
            let usual =
                [io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe, io::ErrorKind::NotConnected];
            if usual.contains(&error.kind()) { Ok(()) } else { Err(error) }
        }
    }
}
