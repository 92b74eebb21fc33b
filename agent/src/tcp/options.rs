//! What `storlab-agent tcp` is asked to look at.

use std::ffi::OsString;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use crate::watching::{OptionError, SHORTEST, read_options, seconds, text, within_room};

/// Endpoints and disks at most.
pub const MAX_EACH: usize = 16;
/// Between two samples, unless something else is said.
pub const INTERVAL: Duration = Duration::from_millis(100);

/// One end of connections: an address, a port, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint {
    /// None: any.
    pub address: Option<IpAddr>,
    /// None: any.
    pub port: Option<u16>,
}

impl Endpoint {
    /// Whether an end of a connection is this one.
    pub fn is_at(&self, address: IpAddr, port: u16) -> bool {
        self.address.is_none_or(|own| own == address) && self.port.is_none_or(|own| own == port)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.address {
            None => write!(f, "*")?,
            Some(IpAddr::V4(address)) => write!(f, "{address}")?,
            Some(IpAddr::V6(address)) => write!(f, "[{address}]")?,
        }
        match self.port {
            None => write!(f, ":*"),
            Some(port) => write!(f, ":{port}"),
        }
    }
}

/// The options of `tcp`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpOptions {
    /// Connections that have one of these at either end; none: all.
    pub endpoints: Vec<Endpoint>,
    /// Kernel names of disks whose requests are counted at the same instants.
    pub disks: Vec<String>,
    pub interval: Duration,
    /// End after this time.
    pub period: Option<Duration>,
    /// Catch what opens and closes between samples, by eBPF.
    pub events: bool,
    /// Count pure ACKs by their bytes and the gaps between them, by eBPF.
    pub distributions: bool,
}

impl Default for TcpOptions {
    fn default() -> Self {
        Self {
            endpoints: vec![],
            disks: vec![],
            interval: INTERVAL,
            period: None,
            events: true,
            distributions: false,
        }
    }
}

/// Understands the arguments that follow `tcp`.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<TcpOptions, OptionError> {
    let mut options = TcpOptions::default();
    read_options(arguments, |name, values| {
        match name {
            "endpoint" => options.endpoints.push(endpoint(&text(values)?)?),
            "disk" => options.disks.push(disk(&text(values)?)?),
            "interval" => options.interval = seconds(name, values, SHORTEST)?,
            "for" => options.period = Some(seconds(name, values, SHORTEST)?),
            "distributions" => options.distributions = true,
            "no-events" => options.events = false,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    within_room(&[("endpoint", options.endpoints.len(), MAX_EACH), ("disk", options.disks.len(), MAX_EACH)])?;
    Ok(options)
}

/// `ADDRESS:PORT`, where either may be `*`; an IPv6 address is in brackets.
fn endpoint(value: &str) -> Result<Endpoint, OptionError> {
    let wrong = || OptionError(format!("--endpoint is ADDRESS:PORT, with * for any, not {value:?}"));
    let (address, port) = value.rsplit_once(':').ok_or_else(wrong)?;
    let bare = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(address);
    Ok(Endpoint {
        address: if address == "*" {
            None
        } else {
            Some(bare.parse::<IpAddr>().map_err(|_| wrong())?.to_canonical())
        },
        port: if port == "*" {
            None
        } else {
            Some(port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?)
        },
    })
}

fn disk(value: &str) -> Result<String, OptionError> {
    let name = value.trim_start_matches("/dev/").replace('/', "!"); // as `/sys` has it: `etherd!e1.0`
    if name.is_empty() || name.starts_with('.') {
        return Err(OptionError(format!("--disk is the kernel's name of a disk, not {value:?}")));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn parse_words(line: &str) -> Result<TcpOptions, OptionError> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn an_endpoint_is_an_address_a_port_or_both() {
        let options =
            parse_words("--endpoint 10.0.0.1:10809 --endpoint *:3260 --endpoint [fd00::1]:*").unwrap();
        let (v4, v6) = ("10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap());
        assert_eq!(options.endpoints[0], Endpoint { address: Some(v4), port: Some(10809) });
        assert!(options.endpoints[1].is_at(v6, 3260) && !options.endpoints[1].is_at(v6, 3261));
        assert!(options.endpoints[2].is_at(v6, 1) && !options.endpoints[2].is_at(v4, 1));
        for wrong in ["10.0.0.1", "host:1", "10.0.0.1:0", "10.0.0.1:65536", ":1"] {
            assert!(parse_words(&format!("--endpoint {wrong}")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_mapped_address_is_the_one_that_it_stands_for() {
        let options = parse_words("--endpoint [::ffff:10.0.0.1]:1").unwrap();
        assert!(options.endpoints[0].is_at("10.0.0.1".parse().unwrap(), 1));
    }

    proptest! {
        #[test]
        fn whatever_is_asked_is_understood_or_refused(
            words in vec(prop_oneof![
                "--(endpoint|disk|interval|for|no-events|distributions|x)", "[0-9.:*\\[\\]]{1,20}", "1e-?[0-9]{1,3}", ".*"
            ], 0..20),
        ) {
            if let Ok(options) = parse(words.into_iter().map(OsString::from)) {
                prop_assert!(options.endpoints.len() <= MAX_EACH && options.disks.len() <= MAX_EACH);
                prop_assert!(options.interval >= SHORTEST);
                prop_assert!(options.disks.iter().all(|name| !name.contains('/')));
            }
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let said = |line: &str| parse_words(line).unwrap_err().0;
        assert_eq!(said("--interval 0"), "--interval is a time in seconds, at least 0.01, not \"0\"");
        assert_eq!(parse_words("--disk etherd/e1.0").unwrap().disks, ["etherd!e1.0"]);
        assert_eq!(said("--disk ../x"), "--disk is the kernel's name of a disk, not \"../x\"");
        assert_eq!(said(&"--endpoint *:1 ".repeat(17)), "--endpoint was given 17 times: 16 at most");
    }
}
