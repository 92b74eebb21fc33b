//! What the event loop waits for: file descriptors and one deadline. Sources: `epoll(7)`, `timerfd_create(2)`.
//!
//! There are two epoll instances. The *bulk* one watches children's output and is itself watched by the main one,
//! so that all of it is switched off by one call while the controller is slow, and can't hold up the rest.

use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::clock::SECOND;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token {
    /// The run's serial number; 0 is the session itself.
    pub serial: u64,
    pub part: Part,
}

/// Which of several file descriptors of one owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    // Of the session.
    Requests,
    Events,
    Signals,
    Deadline,
    Bulk,
    Files,
    Steps,
    // Of a run.
    Report,
    Stdin,
    Stdout,
    Stderr,
}

const PARTS: [Part; 11] = [
    Part::Requests,
    Part::Events,
    Part::Signals,
    Part::Deadline,
    Part::Bulk,
    Part::Files,
    Part::Steps,
    Part::Report,
    Part::Stdin,
    Part::Stdout,
    Part::Stderr,
];

impl Token {
    pub const fn session(part: Part) -> Self {
        Self { serial: 0, part }
    }

    fn encode(self) -> u64 {
        self.serial << 4 | self.part as u64
    }

    fn decode(data: u64) -> Option<Self> {
        let part = *PARTS.get((data & 0xf) as usize)?;
        Some(Self { serial: data >> 4, part })
    }
}

/// Readable, writable, or neither, but that the other side has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    Read,
    Write,
    HangUp,
}

impl Interest {
    fn flags(self) -> EpollFlags {
        match self {
            Self::Read => EpollFlags::EPOLLIN,
            Self::Write => EpollFlags::EPOLLOUT,
            // A pipe and a port report it unasked, a socket does not.
            Self::HangUp => EpollFlags::EPOLLRDHUP,
        }
    }
}

/// How many events are taken in one turn of the loop.
const EVENTS: usize = 32;

/// The main and the bulk epoll, and the timer.
pub struct Poller {
    main: Epoll,
    bulk: Epoll,
    timer: TimerFd,
    deadline: Option<u64>,
    bulk_on: bool,
}

impl Poller {
    /// Watches nothing yet.
    pub fn new() -> nix::Result<Self> {
        let timer =
            TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK)?;
        let main = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let bulk = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let poller = Self { main, bulk, timer, deadline: None, bulk_on: true };
        poller.watch(&poller.timer, Token::session(Part::Deadline), Interest::Read)?;
        poller.watch(&poller.bulk.0, Token::session(Part::Bulk), Interest::Read)?;
        Ok(poller)
    }

    /// Reports when `fd` is ready, until it is closed or [`Poller::unwatch`] is called.
    pub fn watch(&self, fd: impl AsFd, token: Token, interest: Interest) -> nix::Result<()> {
        self.main.add(fd, EpollEvent::new(interest.flags(), token.encode()))
    }

    /// Reports something else about a watched `fd` from now on.
    pub fn change(&self, fd: impl AsFd, token: Token, interest: Interest) -> nix::Result<()> {
        self.main.modify(fd, &mut EpollEvent::new(interest.flags(), token.encode()))
    }

    /// Ends what [`Poller::watch`] began.
    pub fn unwatch(&self, fd: impl AsFd) {
        // Fails only where it wasn't watched, which is what is wanted.
        let _ = self.main.delete(fd);
    }

    /// Reports when `fd` is readable, but only while bulk data may be taken in.
    pub fn watch_bulk(&self, fd: impl AsFd, token: Token) -> nix::Result<()> {
        self.bulk.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, token.encode()))
    }

    pub fn set_bulk(&mut self, on: bool) -> nix::Result<()> {
        if self.bulk_on != on {
            let flags = if on { EpollFlags::EPOLLIN } else { EpollFlags::empty() };
            let mut event = EpollEvent::new(flags, Token::session(Part::Bulk).encode());
            self.main.modify(&self.bulk.0, &mut event)?;
            self.bulk_on = on;
        }
        Ok(())
    }

    /// When [`Poller::wait`] is to return at the latest, on `CLOCK_MONOTONIC`.
    pub fn set_deadline(&mut self, deadline: Option<u64>) -> nix::Result<()> {
        if self.deadline != deadline {
            match deadline {
                // 0 would disarm the timer instead of firing at once.
                Some(at) => self
                    .timer
                    .set(Expiration::OneShot(time_spec(at.max(1))), TimerSetTimeFlags::TFD_TIMER_ABSTIME)?,
                None => self.timer.unset()?,
            }
            self.deadline = deadline;
        }
        Ok(())
    }

    /// Waits for something to be ready, or for the deadline.
    pub fn wait(&mut self) -> nix::Result<Vec<Token>> {
        let tokens = take(&self.main, EpollTimeout::NONE)?;
        if tokens.contains(&Token::session(Part::Deadline)) {
            // Disarmed, so that it isn't reported again; whoever still needs it sets it again.
            self.timer.unset()?;
            self.deadline = None;
        }
        Ok(tokens)
    }

    /// What is ready in bulk, each in turn.
    pub fn bulk_ready(&self) -> nix::Result<Vec<Token>> {
        take(&self.bulk, EpollTimeout::ZERO)
    }
}

fn take(epoll: &Epoll, timeout: EpollTimeout) -> nix::Result<Vec<Token>> {
    let mut events = [EpollEvent::empty(); EVENTS];
    let count = loop {
        match epoll.wait(&mut events, timeout) {
            Err(Errno::EINTR) => {}
            result => break result?,
        }
    };
    Ok(events[..count].iter().filter_map(|event| Token::decode(event.data())).collect())
}

fn time_spec(ns: u64) -> TimeSpec {
    // Deadlines beyond what the kernel can represent are as good as never.
    let ns = ns.min(i64::MAX as u64);
    TimeSpec::new((ns / SECOND) as i64, (ns % SECOND) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_survives_its_way_through_the_kernel() {
        for part in PARTS {
            let token = Token { serial: 123_456, part };
            assert_eq!(Token::decode(token.encode()), Some(token));
        }
    }

    #[test]
    fn a_deadline_in_the_past_is_reported_once() {
        let mut poller = Poller::new().unwrap();
        poller.set_deadline(Some(0)).unwrap();
        assert_eq!(poller.wait().unwrap(), [Token::session(Part::Deadline)]);
        poller.set_deadline(Some(1)).unwrap();
        assert_eq!(poller.wait().unwrap(), [Token::session(Part::Deadline)]);
    }

    #[test]
    fn bulk_data_is_not_reported_while_it_is_switched_off() {
        let mut poller = Poller::new().unwrap();
        let (reader, mut writer) = std::io::pipe().unwrap();
        let token = Token { serial: 7, part: Part::Stdout };
        poller.watch_bulk(&reader, token).unwrap();
        std::io::Write::write_all(&mut writer, b"x").unwrap();
        poller.set_bulk(false).unwrap();
        poller.set_deadline(Some(1)).unwrap();
        assert_eq!(poller.wait().unwrap(), [Token::session(Part::Deadline)]);
        poller.set_bulk(true).unwrap();
        assert_eq!(poller.wait().unwrap(), [Token::session(Part::Bulk)]);
        assert_eq!(poller.bulk_ready().unwrap(), [token]);
    }
}
