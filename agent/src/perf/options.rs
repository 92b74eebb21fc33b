//! Options of `counters`.

use std::ffi::OsString;
use std::time::Duration;

const INTERVAL: Duration = Duration::from_secs(1);
const SHORTEST: Duration = Duration::from_millis(10);

/// What is wrong with the arguments.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct OptionError(pub String);

/// The options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountersOptions {
    /// Between two samples.
    pub interval: Duration,
    /// End after this time.
    pub period: Option<Duration>,
    /// Count nothing where the CPU's own counters can't be used.
    pub hardware: bool,
    /// Only find out whether anything can be counted.
    pub check: bool,
}

/// Understands the arguments that follow `counters`.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<CountersOptions, OptionError> {
    let mut options = CountersOptions { interval: INTERVAL, period: None, hardware: false, check: false };
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let name = argument.to_string_lossy().into_owned();
        let value = || arguments.next().ok_or_else(|| OptionError(format!("{name} needs a value")));
        match name.as_str() {
            "--hardware" => options.hardware = true,
            "--check" => options.check = true,
            "--interval" => options.interval = seconds(&name, value)?,
            "--for" => options.period = Some(seconds(&name, value)?),
            _ => return Err(OptionError(format!("unknown argument {argument:?}"))),
        }
    }
    Ok(options)
}

fn seconds(
    name: &str,
    value: impl FnOnce() -> Result<OsString, OptionError>,
) -> Result<Duration, OptionError> {
    let value = value()?;
    let number = value.to_str().and_then(|text| text.parse().ok());
    number
        .and_then(|number| Duration::try_from_secs_f64(number).ok())
        .filter(|time| *time >= SHORTEST)
        .ok_or_else(|| OptionError(format!("{name} is a time in seconds, at least 0.01, not {value:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_named() {
        let said = |line: &str| parse(line.split_whitespace().map(OsString::from)).map_err(|wrong| wrong.0);
        assert_eq!(said("--interval 0.5").unwrap().interval, Duration::from_millis(500));
        let wrong = "--for is a time in seconds, at least 0.01, not \"0\"";
        assert_eq!(said("--for 0"), Err(wrong.into()));
        assert_eq!(said("--for"), Err("--for needs a value".into()));
        assert_eq!(said("--x"), Err("unknown argument \"--x\"".into()));
    }
}
