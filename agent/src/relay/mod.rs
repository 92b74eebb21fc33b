//! `storlab-agent relay`: stands between a server and its clients and passes on what both say, over TCP.
//!
//! It does to a server's replies what some servers do by themselves: it leaves Nagle's algorithm on (RFC 896),
//! writes a header and its data apart, or answers only when it has a whole reply. So a study can have one server with and without. What it holds in memory
//! is bounded, whoever sends what: so many connections, each with one buffer a direction.

mod copy;
mod nbd;
mod options;

use std::ffi::OsString;
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

pub use copy::{LARGEST, QUIET, pass_on, replies};
pub use options::{Options, OptionsError, parse};

/// Clients at the same time; what comes beyond is hung up on.
pub const MOST: usize = 64;
/// For a server to take a connection: it is on this machine.
const PATIENCE: Duration = Duration::from_secs(10);
const STACK: usize = 128 * 1024; // bytes of a thread: buffers are on the heap

/// Relays until it is killed. Ends with a status other than 0 where it can't listen, or its options make no sense.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    let options = match parse(arguments) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("storlab-agent: relay: {error}\n{}", options::USAGE);
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
