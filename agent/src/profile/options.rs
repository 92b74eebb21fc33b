//! Options of `profile`.

use std::ffi::OsString;
use std::time::Duration;

/// Not 100: what a machine does on its own clock's ticks would always or never be seen.
const FREQUENCY: u64 = 99;
const FASTEST: u64 = 1000;
const INTERVAL: Duration = Duration::from_millis(100);
const SHORTEST: Duration = Duration::from_millis(10);
/// The buffer has room for no longer.
const LONGEST: f64 = 1.0;

/// What is wrong with the arguments.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct OptionError(pub String);

/// The options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProfileOptions {
    /// Samples a second on each CPU.
    pub frequency: u64,
    /// Between two lines.
    pub interval: Duration,
    /// End after this time.
    pub period: Option<Duration>,
    /// Only find out whether it can be.
    pub check: bool,
}

/// Understands the arguments that follow `profile`.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<ProfileOptions, OptionError> {
    let mut options = ProfileOptions { frequency: FREQUENCY, interval: INTERVAL, period: None, check: false };
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let name = argument.to_string_lossy().into_owned();
        let mut value = || {
            let value = arguments.next().ok_or_else(|| OptionError(format!("{name} needs a value")))?;
            value.into_string().map_err(|value| OptionError(format!("{value:?} is no text")))
        };
        match name.as_str() {
            "--frequency" => options.frequency = frequency(&value()?)?,
            "--check" => options.check = true,
            "--interval" => {
                let value = value()?;
                options.interval = seconds(&value, LONGEST).ok_or_else(|| {
                    OptionError(format!("--interval is a time in seconds from 0.01 to 1, not {value:?}"))
                })?;
            }
            "--for" => {
                let value = value()?;
                options.period = Some(seconds(&value, f64::INFINITY).ok_or_else(|| {
                    OptionError(format!("--for is a time in seconds, at least 0.01, not {value:?}"))
                })?);
            }
            _ => return Err(OptionError(format!("unknown argument {argument:?}"))),
        }
    }
    Ok(options)
}

fn frequency(value: &str) -> Result<u64, OptionError> {
    value.parse().ok().filter(|number| (1..=FASTEST).contains(number)).ok_or_else(|| {
        OptionError(format!("--frequency is a number of samples a second from 1 to {FASTEST}, not {value:?}"))
    })
}

fn seconds(value: &str, longest: f64) -> Option<Duration> {
    let number: f64 = value.parse().ok().filter(|number| *number <= longest)?;
    Duration::try_from_secs_f64(number).ok().filter(|time| *time >= SHORTEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_named() {
        let said = |line: &str| parse(line.split_whitespace().map(OsString::from)).map_err(|wrong| wrong.0);
        let options = said("--frequency 49 --for 2 --interval 0.5").unwrap();
        assert_eq!((options.frequency, options.interval), (49, Duration::from_millis(500)));
        assert!(said("--frequency 0").unwrap_err().contains("from 1 to 1000, not \"0\""));
        assert!(said("--interval 2").unwrap_err().contains("from 0.01 to 1, not \"2\""));
        assert!(said("--for inf").unwrap_err().contains("at least 0.01, not \"inf\""));
        assert_eq!(said("--for"), Err("--for needs a value".into()));
        assert_eq!(said("-x"), Err("unknown argument \"-x\"".into()));
    }
}
