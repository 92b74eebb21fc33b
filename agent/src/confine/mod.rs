//! What a study's own words may touch: the storage under test and a folder, and nothing else of the machine.
//!
//! A load runs as root beside people's data, by words that somebody else may have written, and its program can be
//! asked to open any path. So it gets a mount namespace in which all is read-only but what the controller names,
//! and a `/dev` in which no other device exists ([`view`]); and it loses what would lead out of there ([`privileges`]).
//!
//! None of this is looked at while blocks are read and written. Rules of Landlock for paths would do the same without
//! root, but are: they took a quarter of the rate at which files are created in memory, opened and removed.

mod devices;
mod privileges;
mod tree;
mod view;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

/// What a program may write to, by absolute paths. What isn't there is left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Confinement {
    /// Directories and files, with all that is below them.
    #[serde(default)]
    pub writable: Vec<String>,
    /// Nodes of devices.
    #[serde(default)]
    pub devices: Vec<String>,
    /// What is seen at another place as well, read-only: what it is, and where. Both must be there.
    #[serde(default)]
    pub shown: Vec<(String, String)>,
}

/// What could not be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {errno}")]
pub struct Obstacle {
    what: String,
    errno: Errno,
}

impl Obstacle {
    fn of(what: impl Into<String>) -> impl FnOnce(Errno) -> Self {
        move |errno| Self { what: what.into(), errno }
    }

    fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        move |error| Self {
            what: what.into(),
            errno: error.raw_os_error().map_or(Errno::EIO, Errno::from_raw),
        }
    }
}

/// Confines this process, which must have one thread, and all that it becomes and starts.
///
/// `false` where it has no right to make namespaces: then it is an ordinary user's, whom the kernel keeps from
/// devices and from what others own.
pub fn enter(confinement: &Confinement) -> Result<bool, Obstacle> {
    if !view::separate()? {
        return Ok(false);
    }
    view::narrow(confinement)?;
    privileges::give_up(!confinement.devices.is_empty())?;
    Ok(true)
}

/// Becomes a program that is confined, for who starts one without a session: `storlab-agent confine`. Returns where that
/// can't be done; the status is that of env(1).
pub fn become_confined(confinement: &str, argv: &[OsString]) -> ExitCode {
    let said = match serde_json::from_str(confinement) {
        Err(error) => error.to_string(),
        Ok(confinement) => match enter(&confinement) {
            Err(obstacle) => obstacle.to_string(),
            Ok(_) => Command::new(&argv[0]).args(&argv[1..]).exec().to_string(),
        },
    };
    eprintln!("storlab-agent: can't confine {}: {said}", argv[0].display());
    ExitCode::from(125)
}
