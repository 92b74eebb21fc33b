//! `storlab-agent relay`: stands between a server and its clients and passes on what both say, over TCP.
//!
//! It does to a server's replies what some servers do by themselves: it leaves Nagle's algorithm on (RFC 896),
//! writes a header and its data apart, or answers only when it has a whole reply. So a study can have one server with and without. What it holds in memory
//! is bounded, whoever sends what: so many connections, each with one buffer a direction.

mod copy;
mod nbd;

use std::ffi::OsString;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

pub use copy::{LARGEST, QUIET, pass_on, replies};

use crate::watching::{OptionError, read_options, text};

/// Clients at the same time; what comes beyond is hung up on.
pub const MOST: usize = 64;
/// For a server to take a connection: it is on this machine.
const PATIENCE: Duration = Duration::from_secs(10);
const STACK: usize = 128 * 1024; // bytes of a thread: buffers are on the heap

const USAGE: &str = "usage: storlab-agent relay --listen ADDRESS:PORT --to ADDRESS:PORT [--nagle] [--whole [--nbd]] [--head BYTES] [--ready FILE]";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub listen: SocketAddr,
    pub to: SocketAddr,
    /// Whether Nagle's algorithm holds small segments of replies back.
    pub nagle: bool,
    /// Whether a reply is passed on when all of it is there.
    pub whole: bool,
    /// Whether client and server speak NBD, by which it is known when all of a reply is there.
    pub nbd: bool,
    /// Bytes at the beginning of a reply that are written by themselves.
    pub head: usize,
    /// A file that is written once it listens.
    pub ready: Option<PathBuf>,
}

/// Understands the arguments that follow `relay`.
fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Options, OptionError> {
    let (mut listen, mut to, mut ready) = (None, None, None);
    let (mut nagle, mut whole, mut nbd, mut head) = (false, false, false, 0);
    read_options(arguments, |name, values| {
        match name {
            "listen" => {
                listen = Some(number(&text(values)?, "an address with a port, such as 10.213.0.2:10909")?)
            }
            "to" => to = Some(number(&text(values)?, "an address with a port, such as 10.213.0.2:10909")?),
            "ready" => ready = Some(values.value()?.into()),
            "head" => head = number(&text(values)?, "a number of bytes")?,
            "nagle" => nagle = true,
            "whole" => whole = true,
            "nbd" => nbd = true,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let missing = |name: &str| OptionError(format!("it needs --{name}"));
    let (listen, to) = (listen.ok_or_else(|| missing("listen"))?, to.ok_or_else(|| missing("to"))?);
    Ok(Options { listen, to, nagle, whole, nbd, head, ready })
}

fn number<T: FromStr>(value: &str, what: &str) -> Result<T, OptionError> {
    value.parse().map_err(|_| OptionError(format!("{value:?} is not {what}")))
}

/// Relays until it is killed. Ends with a status other than 0 where it can't listen, or its options make no sense.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    let options = match parse(arguments) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("storlab-agent: relay: {error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match serve(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("storlab-agent: relay: {error}");
            ExitCode::from(1)
        }
    }
}

fn serve(options: &Options) -> io::Result<()> {
    let about = |what: &str, error: io::Error| io::Error::new(error.kind(), format!("{what}: {error}"));
    let listener =
        TcpListener::bind(options.listen).map_err(|error| about(&options.listen.to_string(), error))?;
    if let Some(path) = &options.ready {
        std::fs::write(path, format!("{}\n", listener.local_addr()?))
            .map_err(|error| about(&path.display().to_string(), error))?;
    }
    let connected = Arc::new(AtomicUsize::new(0));
    for client in listener.incoming() {
        let (client, options) = (client?, options.clone());
        let seat = Seat::take(&connected);
        if seat.0.load(Ordering::Relaxed) > MOST {
            eprintln!("more than {MOST} clients: one is hung up on");
            continue;
        }
        // Where there is no thread to be had, the client is hung up on as well.
        let begun = thread::Builder::new().stack_size(STACK).spawn(move || {
            let _seat = seat;
            if let Err(error) = relay(&client, &options) {
                eprintln!("{}: {error}", options.to);
                let _ = client.shutdown(Shutdown::Both);
            }
        });
        if let Err(error) = begun {
            eprintln!("a client is hung up on: {error}");
        }
    }
    Ok(())
}

/// Counts a client for as long as it is there.
struct Seat(Arc<AtomicUsize>);

impl Seat {
    fn take(connected: &Arc<AtomicUsize>) -> Self {
        connected.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(connected))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One client, until both sides have said all, or one is gone.
fn relay(client: &TcpStream, options: &Options) -> io::Result<()> {
    let server = TcpStream::connect_timeout(&options.to, PATIENCE)?;
    server.set_nodelay(true)?; // requests are passed on at once: only replies differ
    client.set_nodelay(!options.nagle)?;
    let (asking, answering) = (client.try_clone()?, server.try_clone()?);
    let known = Arc::new(nbd::Asked::default());
    let (asked, follow) = (Arc::clone(&known), options.whole && options.nbd);
    let requests = thread::Builder::new().stack_size(STACK).spawn(move || {
        let mut follower = nbd::Follower::new(&asked);
        pass_on(&asking, &answering, 0, |piece| {
            if follow {
                follower.follow(piece)
            }
        })
    })?;
    let replied = match (options.whole, options.nbd) {
        (true, true) => nbd::replies(&server, client, options.head, &known),
        (true, false) => replies(&server, client, options.head),
        (false, _) => pass_on(&server, client, options.head, |_| {}),
    };
    if replied.is_err() {
        let _ = client.shutdown(Shutdown::Both); // so that its requests end, too
    }
    let asked = requests.join().unwrap_or_else(|_| Err(io::Error::other("a thread ended early")));
    replied.and(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(line: &str) -> Result<Options, OptionError> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn both_addresses_are_needed_and_the_rest_is_not() {
        let options = parse_words("--listen 10.213.0.2:10909 --to [::1]:10809").unwrap();
        assert_eq!((options.nagle, options.whole, options.ready), (false, false, None));
        assert_eq!(parse_words("--listen 1.2.3.4:5"), Err(OptionError("it needs --to".into())));
        assert_eq!(parse_words("--to 1.2.3.4:5"), Err(OptionError("it needs --listen".into())));
    }

    #[test]
    fn what_it_does_to_replies_is_asked_for() {
        let options =
            parse_words("--listen 1.2.3.4:5 --to 1.2.3.4:6 --nagle --whole --ready /x/ready").unwrap();
        assert!(options.nagle && options.whole && options.head == 0);
        assert_eq!(options.ready, Some("/x/ready".into()));
    }

    #[test]
    fn nonsense_is_named() {
        let said = |line: &str| parse_words(line).unwrap_err().0;
        assert!(said("--listen somewhere").starts_with("\"somewhere\" is not an address with a port"));
        assert_eq!(said("--listen"), "missing argument for option '--listen'");
        assert_eq!(said("--head=-1"), "\"-1\" is not a number of bytes");
        assert_eq!(said("--delay 1"), "invalid option '--delay'");
    }
}
