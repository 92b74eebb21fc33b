//! The relay's command line.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

pub(super) const USAGE: &str = "usage: storlab-agent relay --listen ADDRESS:PORT --to ADDRESS:PORT [--nagle] [--whole [--nbd]] [--head BYTES] [--ready FILE]";

/// What the relay was asked to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Where clients connect.
    pub listen: SocketAddr,
    /// The server.
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

/// A command line that can't be obeyed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum OptionsError {
    /// An argument that the relay doesn't know.
    #[error("unknown argument {0:?}")]
    Unknown(OsString),
    /// An option without its value.
    #[error("{0} needs a value")]
    NoValue(&'static str),
    /// Something else than an address with a port.
    #[error("{0:?} is not an address with a port, such as 10.213.0.2:10909")]
    Address(OsString),
    /// Something else than a number of bytes.
    #[error("{0:?} is not a number of bytes")]
    Bytes(OsString),
    /// One of the two addresses is missing.
    #[error("it needs {0}")]
    Missing(&'static str),
}

/// Understands the arguments that follow `relay`.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Options, OptionsError> {
    let mut arguments = arguments.into_iter();
    let (mut listen, mut to, mut ready) = (None, None, None);
    let (mut nagle, mut whole, mut nbd, mut head) = (false, false, false, 0);
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("--listen") => listen = Some(address("--listen", arguments.next())?),
            Some("--to") => to = Some(address("--to", arguments.next())?),
            Some("--ready") => ready = Some(arguments.next().ok_or(OptionsError::NoValue("--ready"))?.into()),
            Some("--head") => head = bytes("--head", arguments.next())?,
            Some("--nagle") => nagle = true,
            Some("--whole") => whole = true,
            Some("--nbd") => nbd = true,
            _ => return Err(OptionsError::Unknown(argument)),
        }
    }
    let listen = listen.ok_or(OptionsError::Missing("--listen"))?;
    let to = to.ok_or(OptionsError::Missing("--to"))?;
    Ok(Options { listen, to, nagle, whole, nbd, head, ready })
}

fn address(option: &'static str, value: Option<OsString>) -> Result<SocketAddr, OptionsError> {
    let value = value.ok_or(OptionsError::NoValue(option))?;
    let parsed = value.to_str().and_then(|text| text.parse().ok());
    parsed.ok_or(OptionsError::Address(value))
}

fn bytes(option: &'static str, value: Option<OsString>) -> Result<usize, OptionsError> {
    let value = value.ok_or(OptionsError::NoValue(option))?;
    let parsed = value.to_str().and_then(|text| text.parse().ok());
    parsed.ok_or(OptionsError::Bytes(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(line: &str) -> Result<Options, OptionsError> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn both_addresses_are_needed_and_the_rest_is_not() {
        let options = parse_words("--listen 10.213.0.2:10909 --to [::1]:10809").unwrap();
        assert_eq!((options.nagle, options.whole, options.ready), (false, false, None));
        assert_eq!(parse_words("--listen 1.2.3.4:5"), Err(OptionsError::Missing("--to")));
        assert_eq!(parse_words("--to 1.2.3.4:5"), Err(OptionsError::Missing("--listen")));
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
        assert_eq!(parse_words("--listen somewhere"), Err(OptionsError::Address("somewhere".into())));
        assert_eq!(parse_words("--listen"), Err(OptionsError::NoValue("--listen")));
        assert_eq!(parse_words("--head -1"), Err(OptionsError::Bytes("-1".into())));
        assert_eq!(parse_words("--delay 1"), Err(OptionsError::Unknown("--delay".into())));
    }
}
