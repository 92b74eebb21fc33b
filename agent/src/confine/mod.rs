//! What a study's own words may touch: the storage under test and a folder, and nothing else of the machine.
//!
//! A load runs as root beside people's data, by words that somebody else may have written, and its program can be
//! asked to open any path. So it gets a mount namespace in which all is read-only but what the controller names,
//! and a `/dev` in which no other device exists ([`view`]), and namespaces of processes, IPC, names and network
//! ([`namespaces`]); it has no capability that it doesn't declare
//! ([`privileges`]), and makes no system call that isn't listed ([`filter`], [`calls`]).
//!
//! Nothing of the former is looked at while blocks are read and written. Rules of Landlock for paths would do the same without
//! root, but are: they took a quarter of the rate at which files are created in memory, opened and removed.

mod bare;
mod calls;
mod devices;
mod filter;
mod handed;
mod hidden;
mod init;
mod namespaces;
mod privileges;
mod tree;
mod view;

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use nix::errno::Errno;
use nix::sys::stat::{self, Mode};
use serde::{Deserialize, Serialize};

use self::handed::Heir;
use self::init::AgentsProc;
use crate::sys::{self, Usage};

/// What a program may do, by lists. Paths are absolute; what isn't there is left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Confinement {
    /// Directories and files, with all that is below them, that it may write to.
    #[serde(default)]
    pub writable: Vec<String>,
    #[serde(default)]
    pub devices: Vec<String>,
    /// What is seen at another place as well, read-only: what it is, and where. Both must be there.
    #[serde(default)]
    pub shown: Vec<(String, String)>,
    /// What it sees, but can't write to, of folders that are hidden from it.
    #[serde(default)]
    pub visible: Vec<String>,
    /// Of these devices the kernel's cache is written back and emptied first: that takes a capability.
    #[serde(default)]
    pub flushed: Vec<String>,
    /// Capabilities that it keeps, such as `CAP_CHOWN`.
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// The user that it becomes, whose group has the same number, if the agent is root. What it may write to is handed to
    /// that user, and so are `visible` and `devices`: root's files there are its own. If a file system can't do that, the
    /// program stays root. It has `capabilities` only if it does.
    #[serde(default)]
    pub user: Option<u32>,
    /// It may use io_uring(7), which opens sockets and files without a system call that a filter sees.
    #[serde(default)]
    pub io_uring: bool,
    /// It keeps the network of its node; else it has one of its own, which reaches nothing.
    #[serde(default)]
    pub network: bool,
    /// It has no namespace of its own but that of its mounts, and may make any system call: it runs in a guest, which is
    /// the wall around it, or becomes a user that has nothing else.
    #[serde(default)]
    pub mounts_only: bool,
    /// Of the machine's files it sees nothing but what is `writable` and `visible`.
    #[serde(default)]
    pub bare: bool,
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

/// What came of it, in the process that is to become the program.
#[derive(Debug, Default)]
pub struct Entered {
    /// `false` where it has no right to make namespaces: then it is an ordinary user's, whom the kernel keeps from
    /// devices and from what others own.
    pub confined: bool,
    /// The number of this process as the agent sees it, where it is not the one that was started.
    pub number: Option<i32>,
    /// What the processes that stay behind have used.
    pub used: Usage,
}

/// Confines this process, which must have one thread, and all that it becomes and starts, for good.
///
/// Returns in another process, unless only mounts are its own: see [`init`].
pub fn enter(confinement: &Confinement) -> Result<Entered, Obstacle> {
    flush(&confinement.flushed)?;
    let Confinement { mounts_only, network, .. } = *confinement;
    let agents_proc = AgentsProc::open()?;
    let heir = if mounts_only { None } else { Heir::of(confinement.user)? };
    if !namespaces::separate(mounts_only, network)? {
        return Ok(Entered::default());
    }
    if mounts_only {
        narrow(confinement, None)?;
        return Ok(Entered { confined: true, ..Entered::default() });
    }
    let of_keeper = sys::own_usage();
    let status = init::become_init()?;
    let heir = narrow(confinement, heir.as_ref())?;
    let of_init = sys::own_usage();
    init::leave_init(status)?;
    if let Some(heir) = heir {
        heir.become_it()?;
    }
    Ok(Entered { confined: true, number: agents_proc.own_number(), used: of_keeper + of_init })
}

/// Gives who is to become the program, if that is not who the agent is.
fn narrow<'a>(confinement: &Confinement, heir: Option<&'a Heir>) -> Result<Option<&'a Heir>, Obstacle> {
    view::make_private()?;
    // Whoever it becomes passes through the folders that are made here.
    let umask = stat::umask(Mode::from_bits_truncate(0o022));
    let heir = view::narrow(confinement, heir)?;
    stat::umask(umask);
    privileges::keep_only(&confinement.capabilities)?;
    if !confinement.mounts_only {
        filter::refuse_others(confinement.io_uring)?;
    }
    Ok(heir)
}

/// Writes back what the kernel's caches of these devices hold, and empties them. An ordinary user may not.
fn flush(devices: &[String]) -> Result<(), Obstacle> {
    for path in devices {
        let device = match File::open(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            opened => opened.map_err(Obstacle::io(path.as_str()))?,
        };
        match sys::flush_cache(&device) {
            Ok(()) | Err(Errno::EACCES | Errno::EPERM) => {}
            Err(errno) => return Err(Obstacle { what: format!("BLKFLSBUF of {path}"), errno }),
        }
    }
    Ok(())
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
