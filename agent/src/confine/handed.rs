//! What is handed to a user that nobody else is: root's files, which are that user's own where it sees them.
//!
//! By a mapping of owners that a mount has (`mount_setattr(2)`, Linux 5.12): nothing changes on the disk, and what that user makes
//! is root's there.

use std::fs::{self, File};
use std::io::{Read, Write, pipe};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::ExitStatus;

use caps::{CapSet, Capability, CapsHashSet};
use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::stat::{SFlag, fstat};
use nix::sys::wait::waitpid;
use nix::unistd::{Gid, Uid, fchown, geteuid, setgroups, setresgid, setresuid};

use super::Obstacle;
use super::privileges::not_given_up;
use crate::sys;

/// A user, who is also its group, and how owners are mapped for it.
#[derive(Debug)]
pub struct Heir {
    number: u32,
    owners: File,
}

impl Heir {
    /// `None` where this process isn't root, or the kernel has no mappings to give.
    pub fn of(number: Option<u32>) -> Result<Option<Self>, Obstacle> {
        let Some(number) = number.filter(|_| geteuid().is_root()) else { return Ok(None) };
        Ok(mapping(number)?.map(|owners| Self { number, owners }))
    }

    pub fn number(&self) -> u32 {
        self.number
    }

    /// Has root's files below a mount, which is attached nowhere yet, be those of this user; `false` where a file system there
    /// can't, as those of networks and of FUSE.
    pub fn gets(&self, mount: BorrowedFd) -> Result<bool, Errno> {
        match sys::map_owners(mount, self.owners.as_fd()) {
            Ok(()) => Ok(true),
            Err(Errno::EINVAL | Errno::EPERM) => Ok(false), // EPERM: it is mapped already
            Err(errno) => Err(errno),
        }
    }

    /// Becomes this user, for good, with the pipes that this process has for its input and output. Until it executes a program it
    /// may still have itself scheduled first.
    pub fn become_it(&self) -> Result<(), Obstacle> {
        let (user, group) = (Uid::from_raw(self.number), Gid::from_raw(self.number));
        let streams = (std::io::stdin(), std::io::stdout(), std::io::stderr());
        for stream in [streams.0.as_fd(), streams.1.as_fd(), streams.2.as_fd()] {
            let is_pipe = fstat(stream).is_ok_and(|found| {
                SFlag::from_bits_truncate(found.st_mode).intersection(SFlag::S_IFMT) == SFlag::S_IFIFO
            });
            if is_pipe {
                fchown(stream, Some(user), Some(group)).map_err(Obstacle::of("fchown of a pipe"))?;
            }
        }
        setgroups(&[]).map_err(Obstacle::of("setgroups"))?;
        setresgid(group, group, group).map_err(Obstacle::of("setresgid"))?;
        prctl::set_keepcaps(true).map_err(Obstacle::of("PR_SET_KEEPCAPS"))?;
        setresuid(user, user, user).map_err(Obstacle::of("setresuid"))?;
        let kept = CapsHashSet::from([Capability::CAP_SYS_NICE]);
        let kept = [
            (CapSet::Effective, CapsHashSet::new()),
            (CapSet::Permitted, kept.clone()),
            (CapSet::Effective, kept),
        ];
        for (set, capabilities) in kept {
            caps::set(None, set, &capabilities).map_err(not_given_up)?;
        }
        Ok(())
    }
}

/// A user namespace in which root is this user, and everybody else who they are. It takes a process to make one.
/// `None` where there can be none, as in a container without these numbers.
fn mapping(number: u32) -> Result<Option<File>, Obstacle> {
    let (mut made, making) = pipe().map_err(Obstacle::io("a pipe"))?;
    let (waiting, mut seen) = pipe().map_err(Obstacle::io("a pipe"))?;
    let Some(child) = sys::fork().map_err(Obstacle::of("fork"))? else {
        drop((made, seen));
        make_one(making, waiting)
    };
    drop((making, waiting));
    let found = made.read_exact(&mut [0]).and_then(|()| {
        let place = format!("/proc/{child}");
        let others = number + 1;
        let lines = format!("0 {number} 1\n1 1 {}\n{others} {others} {}\n", number - 1, u32::MAX - others);
        fs::write(format!("{place}/uid_map"), &lines)?;
        fs::write(format!("{place}/gid_map"), &lines)?;
        File::open(format!("{place}/ns/user"))
    });
    let _ = seen.write_all(&[0]);
    waitpid(child, None).map_err(Obstacle::of("waitpid"))?;
    Ok(found.ok())
}

fn make_one(mut making: impl Write, mut waiting: impl Read) -> ! {
    if unshare(CloneFlags::CLONE_NEWUSER).is_ok() && making.write_all(&[0]).is_ok() {
        let _ = waiting.read(&mut [0]);
    }
    sys::end_as(ExitStatus::default())
}
