//! The kernel's own account of TCP connections: `sock_diag(7)`, and `struct tcp_info` of `linux/tcp.h`.
//!
//! A socket of netlink belongs to the network namespace of whoever opens it, and so does what it shows, sockets of the
//! kernel's own (iSCSI, NVMe/TCP, NBD, NFS) among them.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv6Addr};

use nix::errno::Errno;

use super::options::Endpoint;
use crate::sys;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const NLM_F_MULTI: u16 = 2;

const NETLINK_HEADER: usize = 16;
const DIAG_MESSAGE: usize = 72;
const INET_DIAG_INFO: u16 = 2;
const INET_DIAG_CONG: u16 = 4;
const EXTENSIONS: u8 = 1 << (INET_DIAG_INFO - 1) | 1 << (INET_DIAG_CONG - 1);

const LISTEN: u32 = 10;
const TIME_WAIT: u32 = 6;
const CLOSE: u32 = 7;
const NEW_SYN_RECV: u32 = 12;
const CLOSE_WAIT: u8 = 8;
const LAST_ACK: u8 = 9;
const CLOSING: u8 = 11;
/// Those with a `struct tcp_sock` of their own, whose counters mean something.
const STATES: u32 = 0x1ffe & !(1 << LISTEN | 1 << TIME_WAIT | 1 << CLOSE | 1 << NEW_SYN_RECV);

/// Answers come in pieces of 8 to 32 KiB.
const BUFFER: usize = 64 << 10;

/// One connection: what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// Unique until the machine boots again.
    pub cookie: u64,
    /// This end.
    pub local: (IpAddr, u16),
    /// The other end.
    pub remote: (IpAddr, u16),
    /// Number of its state, `TCP_ESTABLISHED` is 1.
    pub state: u8,
    /// Bytes that wait to be read, and bytes that wait to be sent or acknowledged.
    pub queued: (u32, u32),
    /// The algorithm of congestion control.
    pub congestion: String,
    /// What it has done.
    pub info: Info,
    /// By what the kernel finds it at once: its family and `struct inet_diag_sockid`.
    pub name: Option<(u8, [u8; 48])>,
}

impl Connection {
    /// Whether one of its ends is among these; without any, all are wanted.
    pub fn is_wanted(&self, endpoints: &[Endpoint]) -> bool {
        endpoints.is_empty()
            || [self.local, self.remote]
                .into_iter()
                .any(|(address, port)| endpoints.iter().any(|one| one.is_at(address, port)))
    }
}

macro_rules! info {
    ($($(#[$doc:meta])* $name:ident: $width:ident at $at:literal,)*) => {
        /// Fields of `struct tcp_info`. Those that a kernel lacks are 0: the structure only ever grew at its end.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Info {
            $($(#[$doc])* pub $name: $width,)*
        }

        impl Info {
            /// From the bytes of the structure.
            pub fn parse(bytes: &[u8]) -> Self {
                Self { $($name: $width::from_ne_bytes(field(bytes, $at).unwrap_or_default()),)* }
            }
        }
    };
}

info! {
    /// Without the header, retransmitted ones again.
    bytes_sent: u64 at 200,
    /// Of these, retransmitted.
    bytes_retrans: u64 at 208,
    /// Acknowledged by the other end.
    bytes_acked: u64 at 120,
    /// In order, each once.
    bytes_received: u64 at 128,
    /// All segments, as they are on the wire: a buffer that the card cuts counts as many as it is cut into.
    segs_out: u32 at 136,
    /// All, as the stack has got them.
    segs_in: u32 at 140,
    /// Those with data.
    data_segs_out: u32 at 156,
    /// Those with data.
    data_segs_in: u32 at 152,
    /// Segments that were sent again.
    total_retrans: u32 at 100,
    /// Segments that the other end says it got twice.
    dsack_dups: u32 at 216,
    /// Times that segments were seen to be out of order.
    reord_seen: u32 at 220,
    /// Segments that came out of order.
    rcv_ooopack: u32 at 224,
    /// Segments that reached the other end.
    delivered: u32 at 192,
    /// us, smoothed.
    rtt: u32 at 68,
    /// us.
    rttvar: u32 at 72,
    /// us.
    min_rtt: u32 at 148,
    /// Segments.
    cwnd: u32 at 80,
    /// Segments.
    ssthresh: u32 at 76,
    /// Bytes.
    snd_mss: u32 at 16,
    /// Bytes; a guess.
    rcv_mss: u32 at 20,
    /// Segments in flight.
    unacked: u32 at 24,
    /// Of these, acknowledged selectively.
    sacked: u32 at 28,
    /// Of these, thought to be lost.
    lost: u32 at 32,
    /// us with data in flight.
    busy_time: u64 at 168,
    /// Of these, us in which the other end's window was too small.
    rwnd_limited: u64 at 176,
    /// Of these, us in which the buffer was too small.
    sndbuf_limited: u64 at 184,
}

/// A socket for questions, with room for answers.
pub struct Diag {
    socket: File,
    buffer: Vec<u8>,
}

impl Diag {
    /// Opens it in the network namespace of the calling thread.
    pub fn open() -> io::Result<Self> {
        let socket = File::from(sys::netlink(libc::NETLINK_SOCK_DIAG)?);
        Ok(Self { socket, buffer: vec![0; BUFFER] })
    }

    /// All connections of the namespace that are wanted.
    pub fn connections(&mut self, endpoints: &[Endpoint]) -> io::Result<Vec<Connection>> {
        let mut found = vec![];
        for family in [libc::AF_INET, libc::AF_INET6] {
            match self.dump(family as u8, endpoints, &mut found) {
                // A kernel without IPv6 has none of its connections.
                Err(error) if family == libc::AF_INET6 && error.raw_os_error() == Some(libc::ENOENT) => {}
                other => other?,
            }
        }
        Ok(found)
    }

    /// Those of `known` that are still there.
    pub fn again<'a>(&mut self, known: impl Iterator<Item = &'a Connection>) -> io::Result<Vec<Connection>> {
        let mut found = vec![];
        for (family, id) in known.filter_map(|each| each.name) {
            match self.answer(&request(family, NLM_F_REQUEST, &id), &mut |each| found.push(each)) {
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESTALE)) => {}
                other => other?,
            }
        }
        Ok(found)
    }

    /// A dump is not of one instant: a socket that moves in the kernel's table meanwhile may be listed twice, or not at
    /// all. Of those told twice the later account is taken; cookies tell.
    fn dump(&mut self, family: u8, endpoints: &[Endpoint], found: &mut Vec<Connection>) -> io::Result<()> {
        self.answer(&request(family, NLM_F_REQUEST | NLM_F_DUMP, &[0; 48]), &mut |each| {
            if each.is_wanted(endpoints) {
                found.retain(|known| known.cookie != each.cookie);
                found.push(each);
            }
        })
    }

    /// Asks, and takes in what is answered: messages until the one that says so, or one alone.
    fn answer(&mut self, question: &[u8], take: &mut dyn FnMut(Connection)) -> io::Result<()> {
        self.socket.write_all(question)?;
        loop {
            let length = self.socket.read(&mut self.buffer)?;
            if length == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            for (message, of_many) in messages(&self.buffer[..length]) {
                match message {
                    Message::Connection(connection) => take(*connection),
                    Message::Other => {}
                    Message::Error(errno) => return Err(errno.into()),
                    Message::Done => return Ok(()),
                }
                if !of_many {
                    return Ok(());
                }
            }
        }
    }
}

fn request(family: u8, flags: u16, id: &[u8; 48]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(NETLINK_HEADER + 56);
    bytes.extend(((NETLINK_HEADER + 56) as u32).to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend([0; 8]); // sequence and port: one question at a time
    bytes.extend([family, libc::IPPROTO_TCP as u8, EXTENSIONS, 0]);
    bytes.extend(STATES.to_ne_bytes());
    bytes.extend(id);
    bytes
}

enum Message {
    Connection(Box<Connection>),
    Other,
    Error(Errno),
    Done,
}

/// The messages of one answer, and whether more of it follows; what is cut off or makes no sense ends it.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = (Message, bool)> {
    std::iter::from_fn(move || {
        let length = u32::from_ne_bytes(field(bytes, 0)?) as usize;
        let body = bytes.get(NETLINK_HEADER..length)?;
        let (kind, flags) = (u16::from_ne_bytes(field(bytes, 4)?), u16::from_ne_bytes(field(bytes, 6)?));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        let message = match kind {
            NLMSG_DONE => Message::Done,
            NLMSG_ERROR => {
                let code = field(body, 0).map_or(0, i32::from_ne_bytes);
                Message::Error(Errno::from_raw(code.saturating_neg()))
            }
            SOCK_DIAG_BY_FAMILY => {
                connection(body).map_or(Message::Other, |each| Message::Connection(Box::new(each)))
            }
            _ => Message::Other,
        };
        Some((message, flags & NLM_F_MULTI != 0))
    })
}

/// A `struct inet_diag_msg` and its attributes; none without `tcp_info`.
fn connection(body: &[u8]) -> Option<Connection> {
    let (family, state) = (*body.first()?, *body.get(1)?);
    let end = |port: usize, address: usize| -> Option<(IpAddr, u16)> {
        Some((address_at(body, family, address)?, u16::from_be_bytes(field(body, port)?)))
    };
    let (mut info, mut congestion) = (None, String::new());
    let mut rest = body.get(DIAG_MESSAGE..)?;
    while let (Some(length), Some(kind)) = (field(rest, 0), field(rest, 2)) {
        let length = usize::from(u16::from_ne_bytes(length));
        let Some(value) = rest.get(4..length) else { break };
        match u16::from_ne_bytes(kind) {
            INET_DIAG_INFO => info = Some(without_fin(Info::parse(value), state)),
            INET_DIAG_CONG => {
                let name = value.split(|byte| *byte == 0).next().unwrap_or_default();
                congestion = String::from_utf8_lossy(name).into_owned();
            }
            _ => {}
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(Connection {
        cookie: u64::from_ne_bytes(field(body, 44)?),
        local: end(4, 8)?,
        remote: end(6, 24)?,
        state,
        queued: (u32::from_ne_bytes(field(body, 56)?), u32::from_ne_bytes(field(body, 60)?)),
        congestion,
        info: info?,
        name: Some((family, field(body, 4)?)),
    })
}

/// To the kernel a FIN that has come is a byte, which is none of data.
fn without_fin(info: Info, state: u8) -> Info {
    let has_come = matches!(state, CLOSE_WAIT | LAST_ACK | CLOSING);
    Info { bytes_received: info.bytes_received.saturating_sub(u64::from(has_come)), ..info }
}

/// An IPv4 address that is written as one of IPv6 is the IPv4 address: servers listen on both at once.
fn address_at(body: &[u8], family: u8, at: usize) -> Option<IpAddr> {
    match i32::from(family) {
        libc::AF_INET => Some(IpAddr::from(field::<4>(body, at)?)),
        libc::AF_INET6 => Some(IpAddr::V6(Ipv6Addr::from(field::<16>(body, at)?)).to_canonical()),
        _ => None,
    }
}

/// Some bytes out of many; none where there are fewer.
pub fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use proptest::prelude::*;

    use super::*;

    fn pair(address: &str) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(address).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    fn seen(diag: &mut Diag, stream: &TcpStream) -> Connection {
        let (local, remote) = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
        let ours = Endpoint { address: Some(local.ip().to_canonical()), port: Some(local.port()) };
        let found = diag.connections(&[ours]).unwrap();
        assert_eq!(found.len(), 2, "both ends are on this machine");
        let own = found.into_iter().find(|each| each.local.1 == local.port()).unwrap();
        assert_eq!(own.remote, (remote.ip().to_canonical(), remote.port()));
        own
    }

    #[test]
    fn what_was_sent_is_what_the_kernel_has_counted() {
        let mut diag = Diag::open().unwrap();
        let (mut client, mut server) = pair("127.0.0.1:0");
        let before = seen(&mut diag, &client);
        client.write_all(&[7; 100_000]).unwrap();
        server.read_exact(&mut [0; 100_000]).unwrap();
        server.write_all(&[7; 10]).unwrap();
        client.read_exact(&mut [0; 10]).unwrap();
        let after = seen(&mut diag, &client);
        assert_eq!((after.cookie, after.state), (before.cookie, 1));
        assert_eq!(after.info.bytes_sent - before.info.bytes_sent, 100_000);
        assert_eq!(after.info.bytes_received - before.info.bytes_received, 10);
        assert!(after.info.data_segs_out > before.info.data_segs_out && after.info.snd_mss > 500);
        assert!(!after.congestion.is_empty());
    }

    #[test]
    fn an_ipv4_connection_of_a_socket_for_both_has_ipv4_addresses() {
        let mut diag = Diag::open().unwrap();
        let Ok(listener) = TcpListener::bind("[::]:0") else { return };
        let port = listener.local_addr().unwrap().port();
        let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let _server = listener.accept().unwrap();
        assert!(seen(&mut diag, &client).local.0.is_ipv4());
    }

    #[test]
    fn the_end_of_what_was_sent_is_no_byte() {
        let mut diag = Diag::open().unwrap();
        let (mut client, mut server) = pair("127.0.0.1:0");
        client.write_all(&[7; 10]).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(server.read_to_end(&mut vec![]).unwrap(), 10);
        let seen = seen(&mut diag, &server);
        assert_eq!((seen.state, seen.info.bytes_received), (CLOSE_WAIT, 10));
    }

    #[test]
    fn a_connection_of_others_is_not_wanted() {
        let mut diag = Diag::open().unwrap();
        let (client, _server) = pair("127.0.0.1:0");
        let port = client.local_addr().unwrap().port();
        let other = "127.9.9.9".parse().unwrap();
        assert_eq!(diag.connections(&[Endpoint { address: Some(other), port: Some(port) }]).unwrap(), []);
    }

    proptest! {
        #[test]
        fn no_answer_breaks_it(bytes in proptest::collection::vec(any::<u8>(), 0..400), honest in any::<bool>()) {
            let length = bytes.len() as u32 + 16;
            let head = [&length.to_ne_bytes()[..], &SOCK_DIAG_BY_FAMILY.to_ne_bytes(), &[0; 10]].concat();
            let bytes = if honest { [&head[..], &bytes].concat() } else { bytes };
            prop_assert!(messages(&bytes).count() <= 500);
        }
    }
}
