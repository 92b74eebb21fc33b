//! What `storlab-agent locks` is asked to look at.

use std::ffi::OsString;
use std::time::Duration;

use crate::trace::options::{cgroup, seconds, text};

pub use crate::trace::options::OptionError;

/// The options of `locks`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LockOptions {
    /// Only try whether it works.
    pub check: bool,
    /// The id of a cgroup (v2) whose waits are counted by themselves; 0: none.
    pub cgroup: u64,
    /// Tell the counts so often.
    pub interval: Option<Duration>,
    /// End after this time.
    pub period: Option<Duration>,
}

/// Understands the arguments that follow `locks`.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<LockOptions, OptionError> {
    let mut options = LockOptions::default();
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let name = text(&argument)?.to_owned();
        let mut value = || arguments.next().ok_or_else(|| OptionError(format!("{name} needs a value")));
        match name.as_str() {
            "--check" => options.check = true,
            "--cgroup" => options.cgroup = cgroup(text(&value()?)?)?,
            "--interval" => options.interval = Some(seconds(&name, text(&value()?)?)?),
            "--for" => options.period = Some(seconds(&name, text(&value()?)?)?),
            _ => return Err(OptionError(format!("unknown argument {argument:?}"))),
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(line: &str) -> Result<LockOptions, OptionError> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn what_is_asked_is_understood() {
        let second = Some(Duration::from_secs(1));
        let wanted = LockOptions { check: true, cgroup: 7, interval: second, period: second };
        assert_eq!(parse_words("--check --cgroup 7 --interval 1 --for 1"), Ok(wanted));
        assert_eq!(parse_words(""), Ok(LockOptions::default()));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let said = |line: &str| parse_words(line).unwrap_err().0;
        assert_eq!(said("--cgroup 0"), "--cgroup is the number of a group, not \"0\"");
        assert_eq!(said("--for"), "--for needs a value");
        assert_eq!(said("--disk"), "unknown argument \"--disk\"");
    }
}
