//! What commands that watch have in common: their options, the clock of their lines, and how they end.

use std::ffi::OsString;
use std::io::{self, BufWriter, Stdout, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use aya::maps::MapError;
use lexopt::{Arg, Parser};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::SignalFd;
use serde::Serialize;

/// Between two lines, at least.
pub const SHORTEST: Duration = Duration::from_millis(10);

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct OptionError(pub String);

impl From<lexopt::Error> for OptionError {
    fn from(error: lexopt::Error) -> Self {
        Self(error.to_string())
    }
}

/// Gives each long option to `take`, which answers whether it knows it, and reads its value from the parser.
pub fn read_options(
    arguments: impl IntoIterator<Item = OsString>,
    mut take: impl FnMut(&str, &mut Parser) -> Result<bool, OptionError>,
) -> Result<(), OptionError> {
    let mut parser = Parser::from_args(arguments);
    while let Some(argument) = parser.next()? {
        let Arg::Long(name) = argument else { return Err(argument.unexpected().into()) };
        let name = name.to_owned();
        if !take(&name, &mut parser)? {
            return Err(OptionError(format!("invalid option '--{name}'")));
        }
    }
    Ok(())
}

pub fn text(parser: &mut Parser) -> Result<String, OptionError> {
    let value = parser.value()?;
    value.into_string().map_err(|value| OptionError(format!("{value:?} is not UTF-8")))
}

/// A time that is `least` or more.
pub fn seconds(name: &str, parser: &mut Parser, least: Duration) -> Result<Duration, OptionError> {
    let value = text(parser)?;
    let number = value.parse().ok().and_then(|number| Duration::try_from_secs_f64(number).ok());
    number.filter(|time| *time >= least).ok_or_else(|| {
        OptionError(format!("--{name} is a time in seconds, at least {}, not {value:?}", least.as_secs_f64()))
    })
}

pub fn cgroup(parser: &mut Parser) -> Result<u64, OptionError> {
    let value = text(parser)?;
    value
        .parse()
        .ok()
        .filter(|id| *id > 0)
        .ok_or_else(|| OptionError(format!("--cgroup is the number of a group, not {value:?}")))
}

/// No option may be given more often than there is room for: (its name, how often it was given, room).
pub fn within_room(given: &[(&str, usize, usize)]) -> Result<(), OptionError> {
    match given.iter().find(|(_, given, room)| given > room) {
        Some((name, given, room)) => {
            Err(OptionError(format!("--{name} was given {given} times: {room} at most")))
        }
        None => Ok(()),
    }
}

/// Why nothing is watched, or no longer.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The arguments can't be obeyed.
    #[error("{0}")]
    Option(#[from] OptionError),
    #[error("{0}")]
    NotThere(String),
    /// The kernel, or its configuration, doesn't allow it.
    #[error("{0}")]
    Refused(String),
    #[error("the counts can't be read: {0}")]
    Map(#[from] MapError),
    /// Anything else.
    #[error("{0}")]
    System(#[from] io::Error),
}

impl From<Errno> for WatchError {
    fn from(errno: Errno) -> Self {
        Self::System(errno.into())
    }
}

/// The exit status of a command that watched: 2 for what its caller can fix, with the `usage` for its options.
pub fn exit_code(ended: Result<(), WatchError>, usage: &str) -> ExitCode {
    let error = match ended {
        Ok(()) => return ExitCode::SUCCESS,
        // Nobody reads any more: there is nothing left to do, and nothing wrong.
        Err(WatchError::System(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            return ExitCode::SUCCESS;
        }
        Err(error) => error,
    };
    eprintln!("storlab-agent: {error}");
    if matches!(error, WatchError::Option(_)) {
        eprintln!("{usage}");
    }
    ExitCode::from(if matches!(error, WatchError::Option(_) | WatchError::NotThere(_)) { 2 } else { 1 })
}

/// JSON lines on stdout, and what ends them: a signal, the reader's leaving, or the end of a time.
pub struct Watch {
    signals: SignalFd,
    out: BufWriter<Stdout>,
    interval: Option<Duration>,
    end: Option<Instant>,
    tick: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Neither: it was only woken.
    Nothing,
    Line,
    /// The last line.
    End,
}

impl Watch {
    /// From here on signals are waited for, and the parent's death ends it.
    pub fn prepare() -> Result<Self, Errno> {
        prctl::set_pdeathsig(Signal::SIGTERM)?;
        let mut ending = SigSet::empty();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            ending.add(signal);
        }
        ending.thread_block()?;
        let (signals, out) = (SignalFd::new(&ending)?, BufWriter::new(io::stdout()));
        Ok(Self { signals, out, interval: None, end: None, tick: None })
    }

    /// Lines are due at every `interval` from now on, the last one after `period`. A time that the clock can't reach
    /// never comes.
    pub fn begin(&mut self, interval: Option<Duration>, period: Option<Duration>) {
        let now = Instant::now();
        self.interval = interval;
        self.end = period.and_then(|period| now.checked_add(period));
        self.tick = interval.and_then(|interval| now.checked_add(interval));
    }

    /// Waits for what is due next, and no longer than `most`.
    pub fn next(&mut self, most: Option<Duration>) -> Result<Due, Errno> {
        let woken = most.map(|most| Instant::now() + most);
        let until = [self.end, self.tick, woken].into_iter().flatten().min();
        let over = wait(self.signals.as_fd(), self.out.get_ref().as_fd(), until)?;
        let now = Instant::now();
        if over || self.end.is_some_and(|end| end <= now) {
            return Ok(Due::End);
        }
        let (Some(due), Some(interval)) = (self.tick.filter(|due| *due <= now), self.interval) else {
            return Ok(Due::Nothing);
        };
        // What was missed while the machine stood still is not made up for.
        self.tick = due.checked_add(interval).filter(|next| *next > now).or(now.checked_add(interval));
        Ok(Due::Line)
    }

    /// Waits until a line or the end is due.
    pub fn is_over(&mut self) -> Result<bool, Errno> {
        loop {
            match self.next(None)? {
                Due::Nothing => {}
                due => return Ok(due == Due::End),
            }
        }
    }

    /// Writes a line, which comes out with [`flush`](Self::flush).
    pub fn put(&mut self, line: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, line)?;
        self.out.write_all(b"\n")
    }

    /// Writes a line, and all before it, to the reader.
    pub fn tell(&mut self, line: &impl Serialize) -> io::Result<()> {
        self.put(line)?;
        self.flush()
    }

    /// Gives the reader all lines.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    pub fn out(&mut self) -> &mut BufWriter<Stdout> {
        &mut self.out
    }
}

/// Waits for a signal, for the reader's leaving, or until then; true where it is over.
fn wait(signals: BorrowedFd, out: BorrowedFd, until: Option<Instant>) -> Result<bool, Errno> {
    let mut watched = [PollFd::new(signals, PollFlags::POLLIN), PollFd::new(out, PollFlags::empty())];
    let timeout = until.map_or(PollTimeout::NONE, |until| {
        let left = until.saturating_duration_since(Instant::now()) + Duration::from_micros(999);
        PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
    });
    match poll(&mut watched, timeout) {
        Ok(0) | Err(Errno::EINTR) => Ok(false),
        Ok(_) => {
            let [signal, reader] = watched.map(|fd| fd.revents().unwrap_or(PollFlags::empty()));
            Ok(signal.contains(PollFlags::POLLIN)
                || reader.intersects(PollFlags::POLLERR | PollFlags::POLLHUP))
        }
        Err(errno) => Err(errno),
    }
}
