//! What `storlab-agent trace` is asked to look at.

use std::ffi::OsString;
use std::time::Duration;

use super::names;
use crate::watching::{OptionError, cgroup, read_options, seconds, text, within_room};

/// As many of each kind as the programs have room for; see `bpf/filter.h`.
pub const MAX_DISKS: usize = 16;
pub const MAX_VALUES: usize = 8;
/// Bytes of a command's name in the kernel, the closing zero included.
pub const COMM_SIZE: usize = 16;
const SHORTEST: Duration = Duration::from_millis(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// `tp_btf`.
    Btf,
    Tracepoint,
}

impl Hook {
    pub fn name(self) -> &'static str {
        match self {
            Self::Btf => "btf",
            Self::Tracepoint => "tracepoint",
        }
    }
}

/// The options of `trace`. An empty filter lets everything through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceOptions {
    pub disks: Vec<String>,
    pub operations: Vec<u32>,
    /// Names of commands, as the kernel cuts them.
    pub comms: Vec<Vec<u8>>,
    /// Lengths in bytes.
    pub lengths: Vec<u32>,
    /// Joint alignments in bytes.
    pub alignments: Vec<u32>,
    /// The id of a cgroup (v2) whose requests are counted by themselves too; 0: none.
    pub cgroup: u64,
    /// Count each command apart.
    pub by_comm: bool,
    pub latency: bool,
    /// Tell each request.
    pub events: bool,
    /// Tell the counts so often.
    pub interval: Option<Duration>,
    /// End after this time.
    pub period: Option<Duration>,
    /// This hook or none.
    pub hook: Option<Hook>,
}

impl Default for TraceOptions {
    fn default() -> Self {
        Self {
            disks: vec![],
            operations: vec![],
            comms: vec![],
            lengths: vec![],
            alignments: vec![],
            cgroup: 0,
            by_comm: false,
            latency: true,
            events: false,
            interval: None,
            period: None,
            hook: None,
        }
    }
}

/// Understands the arguments that follow `trace`.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<TraceOptions, OptionError> {
    let mut options = TraceOptions::default();
    read_options(arguments, |name, values| {
        match name {
            "disk" => options.disks.push(text(values)?.trim_start_matches("/dev/").to_owned()),
            "op" => options.operations.push(operation(&text(values)?)?),
            "comm" => options.comms.push(comm(&text(values)?)?),
            "length" => options.lengths.push(bytes(name, &text(values)?)?),
            "alignment" => options.alignments.push(alignment(&text(values)?)?),
            "interval" => options.interval = Some(seconds(name, values, SHORTEST)?),
            "for" => options.period = Some(seconds(name, values, SHORTEST)?),
            "hook" => options.hook = Some(hook(&text(values)?)?),
            "cgroup" => options.cgroup = cgroup(values)?,
            "by-comm" => options.by_comm = true,
            "no-latency" => options.latency = false,
            "events" => options.events = true,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    within_room(&[
        ("disk", options.disks.len(), MAX_DISKS),
        ("comm", options.comms.len(), MAX_VALUES),
        ("length", options.lengths.len(), MAX_VALUES),
        ("alignment", options.alignments.len(), MAX_VALUES),
    ])?;
    Ok(options)
}

fn operation(name: &str) -> Result<u32, OptionError> {
    names::operation_number(name)
        .ok_or_else(|| OptionError(format!("{name:?} is no operation; there are {}", names::operations())))
}

/// Cut where the kernel cuts it, be it amid a character.
fn comm(name: &str) -> Result<Vec<u8>, OptionError> {
    if name.is_empty() || name.contains('\0') {
        return Err(OptionError(format!("{name:?} is no command's name")));
    }
    Ok(name.bytes().take(COMM_SIZE - 1).collect())
}

fn bytes(name: &str, value: &str) -> Result<u32, OptionError> {
    value
        .parse()
        .map_err(|_| OptionError(format!("--{name} is a number of bytes below 4 GiB, not {value:?}")))
}

fn alignment(value: &str) -> Result<u32, OptionError> {
    let number = bytes("alignment", value)?;
    if number >= 512 && number.is_power_of_two() {
        Ok(number)
    } else {
        Err(OptionError(format!("--alignment is a power of two from 512 on, not {value}")))
    }
}

fn hook(name: &str) -> Result<Hook, OptionError> {
    [Hook::Btf, Hook::Tracepoint]
        .into_iter()
        .find(|hook| hook.name() == name)
        .ok_or_else(|| OptionError(format!("{name:?} is no hook; there are btf and tracepoint")))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn parse_words(line: &str) -> Result<TraceOptions, OptionError> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn filters_add_up() {
        let options =
            parse_words("--disk vda --disk /dev/vdb1 --op write --length 4096 --alignment 512").unwrap();
        assert_eq!(options.disks, ["vda", "vdb1"]);
        assert_eq!(
            (options.operations, options.lengths, options.alignments),
            (vec![1], vec![4096], vec![512])
        );
    }

    #[test]
    fn times_are_seconds_with_fractions() {
        let options = parse_words("--interval 0.25 --for 30").unwrap();
        assert_eq!(options.interval, Some(Duration::from_millis(250)));
        assert_eq!(options.period, Some(Duration::from_secs(30)));
        for wrong in ["0", "-1", "nan", "inf", "1s", "1e300"] {
            assert!(parse_words(&format!("--interval {wrong}")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_commands_name_is_cut_as_the_kernel_cuts_it() {
        assert_eq!(parse_words("--comm a-command-with-a-long-name").unwrap().comms, [b"a-command-with-"]);
        assert_eq!(parse_words("--comm äääääääää").unwrap().comms, ["ääääääää".as_bytes()[..15].to_vec()]);
    }

    const NAMES: &str =
        "--(disk|op|comm|length|alignment|interval|for|hook|cgroup|by-comm|no-latency|events|x)";

    proptest! {
        #[test]
        fn whatever_is_asked_is_understood_or_refused(
            words in vec(prop_oneof![NAMES, "[0-9]{1,25}", "1e-?[0-9]{1,3}", "read|btf|vda", ".*"], 0..20),
        ) {
            if let Ok(options) = parse(words.into_iter().map(OsString::from)) {
                prop_assert!(options.disks.len() <= MAX_DISKS && options.lengths.len() <= MAX_VALUES);
                prop_assert!(options.comms.iter().all(|comm| (1..COMM_SIZE).contains(&comm.len())));
                prop_assert!(options.alignments.iter().all(|size| *size >= 512 && size.is_power_of_two()));
            }
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let said = |line: &str| parse_words(line).unwrap_err().0;
        assert!(said("--op writes").starts_with("\"writes\" is no operation; there are read, write"));
        assert_eq!(said("--alignment 1000"), "--alignment is a power of two from 512 on, not 1000");
        assert_eq!(said("--cgroup 0"), "--cgroup is the number of a group, not \"0\"");
        assert_eq!(said("--disk"), "missing argument for option '--disk'");
        assert_eq!(said("--verbose"), "invalid option '--verbose'");
        assert_eq!(said(&"--length 1 ".repeat(9)), "--length was given 9 times: 8 at most");
    }
}
