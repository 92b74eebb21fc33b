//! The relay between a client and a server: all bytes, in order, both ways, and never more of them than it may hold.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_storlab-agent");
const GUARD: Duration = Duration::from_secs(30);

struct Relay {
    child: Child,
    address: SocketAddr,
    ready: std::path::PathBuf,
}

impl Relay {
    fn before(server: SocketAddr, name: &str, options: &[&str]) -> Self {
        let ready = std::env::temp_dir().join(format!("relay-{}-{name}", std::process::id()));
        let mut command = Command::new(PROGRAM);
        command
            .args(["relay", "--listen", "127.0.0.1:0", "--to", &server.to_string(), "--ready"])
            .arg(&ready);
        let child = command.args(options).stderr(Stdio::null()).spawn().unwrap();
        let deadline = Instant::now() + GUARD;
        let address = loop {
            match fs::read_to_string(&ready).ok().and_then(|text| text.trim().parse().ok()) {
                Some(address) => break address,
                None => assert!(Instant::now() < deadline, "it does not listen"),
            }
            thread::sleep(Duration::from_millis(5));
        };
        Self { child, address, ready }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(GUARD)).unwrap();
        stream
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.ready);
    }
}

fn server(serve: impl Fn(TcpStream) + Send + Sync + Copy + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            thread::spawn(move || serve(client));
        }
    });
    address
}

fn echo(mut stream: TcpStream) {
    let mut buffer = vec![0; 7777];
    while let Ok(size @ 1..) = stream.read(&mut buffer) {
        if stream.write_all(&buffer[..size]).is_err() {
            return;
        }
    }
}

/// Sends a header at once, and the rest of the reply a millisecond later.
fn in_pieces(mut stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    let mut request = [0];
    while let Ok(1) = stream.read(&mut request) {
        stream.write_all(&[1; 16]).unwrap();
        thread::sleep(Duration::from_millis(1));
        stream.write_all(&[2; 8192]).unwrap();
    }
}

fn bytes(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at * 31 % 251) as u8).collect()
}

#[test]
fn all_bytes_arrive_in_order_and_the_end_is_passed_on() {
    for (name, options) in [
        ("plain", &[][..]),
        ("nagle", &["--nagle"]),
        ("whole", &["--whole", "--nagle"]),
        ("nbd", &["--whole", "--nbd"]),
        ("head", &["--head", "16"]),
    ] {
        let relay = Relay::before(server(echo), name, options);
        let sent = bytes(5_000_003);
        let mut client = relay.connect();
        let mut writing = client.try_clone().unwrap();
        let expected = sent.clone();
        let writer = thread::spawn(move || {
            writing.write_all(&sent).unwrap();
            writing.shutdown(Shutdown::Write).unwrap();
        });
        let mut got = Vec::new();
        client.read_to_end(&mut got).unwrap();
        writer.join().unwrap();
        assert!(got == expected, "{name}: {} of {} bytes", got.len(), expected.len());
    }
}

#[test]
fn a_reply_comes_as_it_is_sent_or_whole() {
    for (name, options, first) in [("pieces", &[][..], 16), ("together", &["--whole"], 8208)] {
        let relay = Relay::before(server(in_pieces), name, options);
        let mut client = relay.connect();
        let mut sizes = Vec::new();
        for _ in 0..20 {
            client.write_all(&[0]).unwrap();
            let mut buffer = [0; 10_000];
            let mut size = client.read(&mut buffer).unwrap();
            sizes.push(size);
            while size < 8208 {
                size += client.read(&mut buffer).unwrap();
            }
            assert_eq!(size, 8208);
        }
        sizes.sort_unstable();
        assert_eq!(sizes[sizes.len() / 2], first, "{name}: {sizes:?}");
    }
}

/// A handshake of one option, then for each request the data in two writes, with a pause far longer than a reply that
/// only seems to be over; a second reply follows at once in the same write as the end of the first.
fn slow_nbd(mut stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    stream.write_all(b"NBDMAGICIHAVEOPT\0\x03").unwrap();
    let mut hello = [0; 4 + 16 + 5];
    stream.read_exact(&mut hello).unwrap();
    stream.write_all(b"ready").unwrap();
    let mut requests = [0; 2 * 28 + 28 + 7];
    while stream.read_exact(&mut requests).is_ok() {
        let mut replies = Vec::new();
        for (at, length) in [(0, 5000), (28, 6000), (56, 0)] {
            replies.extend(0x6744_6698_u32.to_be_bytes());
            replies.extend([0; 4]);
            replies.extend(&requests[at + 8..at + 16]);
            replies.extend(vec![7; length]);
        }
        stream.write_all(&replies[..1000]).unwrap();
        thread::sleep(Duration::from_millis(40));
        stream.write_all(&replies[1000..5100]).unwrap();
        thread::sleep(Duration::from_millis(40));
        stream.write_all(&replies[5100..]).unwrap();
    }
}

fn nbd_request(kind: u16, cookie: u64, length: u32) -> Vec<u8> {
    let mut request = 0x2560_9513_u32.to_be_bytes().to_vec();
    request.extend([0, 0]);
    request.extend(kind.to_be_bytes());
    request.extend(cookie.to_be_bytes());
    request.extend([0; 8]);
    request.extend(length.to_be_bytes());
    request
}

#[test]
fn a_reply_of_nbd_is_whole_when_all_that_was_asked_for_is_there_however_long_that_takes() {
    for (name, options, sizes) in
        [("nbd-whole", &["--whole", "--nbd"][..], [5016, 6032]), ("nbd-pieces", &["--nbd"], [1000, 4100])]
    {
        let relay = Relay::before(server(slow_nbd), name, options);
        let mut client = relay.connect();
        client.set_nodelay(true).unwrap();
        client.read_exact(&mut [0; 18]).unwrap();
        client.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x07\0\0\0\x05hello").unwrap();
        client.read_exact(&mut [0; 5]).unwrap();
        for round in 0..3 {
            let reads = [nbd_request(0, round * 3, 5000), nbd_request(0, round * 3 + 1, 6000)].concat();
            let write = [nbd_request(1, round * 3 + 2, 7), vec![0x25; 7]].concat();
            client.write_all(&reads[..30]).unwrap(); // cut anywhere
            client.write_all(&[&reads[30..], &write].concat()).unwrap();
            let mut got = [0; 20_000];
            let first = client.read(&mut got).unwrap();
            let second = client.read(&mut got[first..]).unwrap();
            assert_eq!(first, sizes[0], "{name}");
            assert!(second <= sizes[1], "{name}: {second}");
            client.read_exact(&mut got[first + second..5016 + 6016 + 16]).unwrap();
        }
    }
}

#[test]
fn a_server_that_hangs_up_or_is_not_there_ends_its_client_and_nobody_else() {
    let relay = Relay::before(server(drop), "short", &[]);
    for _ in 0..100 {
        assert_eq!(relay.connect().read(&mut [0; 9]).unwrap_or(0), 0);
    }
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let relay = Relay::before(nobody, "nobody", &["--whole"]);
    for _ in 0..3 {
        assert_eq!(relay.connect().read(&mut [0; 9]).unwrap_or(0), 0);
    }
}

#[test]
fn one_client_too_many_is_hung_up_on_and_the_next_is_served_when_there_is_room() {
    let relay = Relay::before(server(echo), "many", &[]);
    let mut clients: Vec<_> = (0..64).map(|_| relay.connect()).collect();
    for client in &mut clients {
        client.write_all(b"x").unwrap();
        assert_eq!(client.read(&mut [0; 9]).unwrap(), 1);
    }
    assert_eq!(relay.connect().read(&mut [0; 9]).unwrap_or(0), 0);
    clients.clear();
    let deadline = Instant::now() + GUARD;
    loop {
        let mut client = relay.connect();
        if client.write_all(b"x").is_ok() && client.read(&mut [0; 9]).unwrap_or(0) == 1 {
            break;
        }
        assert!(Instant::now() < deadline, "nobody is served any more");
    }
}

#[test]
fn a_client_that_reads_nothing_does_not_fill_its_memory() {
    let flood = |mut stream: TcpStream| {
        let piece = vec![0; 65536];
        while stream.write_all(&piece).is_ok() {}
    };
    for (name, options) in [("flood", &[][..]), ("flood-whole", &["--whole"])] {
        let relay = Relay::before(server(flood), name, options);
        let _deaf: Vec<_> = (0..8).map(|_| relay.connect()).collect();
        thread::sleep(Duration::from_millis(500));
        let status = fs::read_to_string(format!("/proc/{}/status", relay.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
        let kilobytes: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert!(kilobytes < 8 * 1200 + 8 * 128 + 8192, "{name}: {line}");
    }
}
