//! System calls for which no safe wrapper exists. All `unsafe` of the agent is here.

#![allow(unsafe_code)]

mod perf;
mod spawn;

pub use perf::{Scope, open_counter};
pub use spawn::{Image, spawn_into};

use std::ffi::CStr;
use std::io;
use std::ops::{Add, BitOr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::resource::{Resource, UsageWho, getrusage, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::time::TimeVal;
use nix::unistd::Pid;
use seccompiler::BpfProgramRef;

use crate::clock::SECOND;

/// What a process and the children that it waited for have used.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    pub user_ns: u64,
    /// Time in the kernel.
    pub system_ns: u64,
    pub max_rss_bytes: u64,
}

impl Add for Usage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            user_ns: self.user_ns + other.user_ns,
            system_ns: self.system_ns + other.system_ns,
            max_rss_bytes: self.max_rss_bytes.max(other.max_rss_bytes),
        }
    }
}

/// What this process has used so far, but for memory.
pub fn own_usage() -> Usage {
    let nanoseconds = |time: TimeVal| {
        u64::try_from(time.tv_sec()).unwrap_or_default() * SECOND
            + u64::try_from(time.tv_usec()).unwrap_or_default() * 1000
    };
    getrusage(UsageWho::RUSAGE_SELF).map_or_else(
        |_| Usage::default(),
        |usage| Usage {
            user_ns: nanoseconds(usage.user_time()),
            system_ns: nanoseconds(usage.system_time()),
            max_rss_bytes: 0,
        },
    )
}

/// Reaps one dead child and tells what it used: `wait4(2)`, which neither `std` nor `nix` wraps. `None` where
/// it isn't dead or is no child.
pub fn reap(pid: Pid) -> Option<(ExitStatus, Usage)> {
    let mut status = 0;
    // SAFETY: an all-zero rusage is a valid value of that plain C struct.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid for the call, and the kernel keeps neither.
    let reaped = unsafe { libc::wait4(pid.as_raw(), &raw mut status, libc::WNOHANG, &raw mut usage) };
    (reaped > 0).then(|| {
        let usage = Usage {
            user_ns: nanoseconds(usage.ru_utime),
            system_ns: nanoseconds(usage.ru_stime),
            max_rss_bytes: u64::try_from(usage.ru_maxrss).unwrap_or_default() * 1024,
        };
        (ExitStatus::from_raw(status), usage)
    })
}

fn nanoseconds(time: libc::timeval) -> u64 {
    u64::try_from(time.tv_sec).unwrap_or_default() * SECOND
        + u64::try_from(time.tv_usec).unwrap_or_default() * 1000
}

/// Takes over a file descriptor that this process inherited under a number it was told, and keeps it from being
/// inherited further.
pub fn adopt_inherited(fd: RawFd) -> io::Result<OwnedFd> {
    if fd <= libc::STDERR_FILENO {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: borrowed for one fcntl, which reports EBADF where the number is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    fcntl(borrowed, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    // SAFETY: it is open, as the call above has shown, and whoever started this process left it to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Keeps every file descriptor but the standard streams from being inherited by the program: whoever started the
/// agent may have leaked some into it. `close_range(2)`, since Linux 5.11; on older kernels they are passed on.
pub fn inherit_standard_streams_only() {
    let first = libc::STDERR_FILENO + 1;
    // SAFETY: it takes three numbers, closes nothing, and only sets a flag that exec looks at.
    unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

/// How the kernel schedules a process: `sched(7)`.
#[derive(Clone, Copy)]
pub struct Scheduling {
    policy: i32,
    priority: i32,
}

/// Lets nothing but other real-time processes keep this one from running, and gives what was before. `None` where
/// that isn't allowed.
pub fn schedule_first() -> Option<Scheduling> {
    let mut parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the pointer is valid for the call; 0 is this process.
    let policy = unsafe {
        libc::sched_getparam(0, &raw mut parameters);
        libc::sched_getscheduler(0)
    };
    let before = Scheduling { policy, priority: parameters.sched_priority };
    let first = Scheduling { policy: libc::SCHED_FIFO, priority: 1 };
    (policy >= 0 && schedule_as(first)).then_some(before)
}

/// Schedules this process in this way from now on.
pub fn schedule_as(Scheduling { policy, priority }: Scheduling) -> bool {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: the pointer is valid for the call; 0 is this process.
    unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) == 0 }
}

/// Gives every signal its default action. A program inherits through exec what its parent ignored: SIGPIPE of the
/// agent, SIGHUP of a `nohup`.
pub fn reset_signal_actions() {
    (1..=libc::SIGRTMAX()).for_each(set_default_action);
}

pub fn default_action(signal: Signal) {
    set_default_action(signal as i32);
}

fn set_default_action(signal: i32) {
    // SAFETY: an all-zero sigaction is SIG_DFL with an empty mask and no flags.
    let default: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: `default` is valid for the call, and installs no handler. KILL, STOP and the two signals that the C
    // library keeps for itself are refused, which is right.
    unsafe { libc::sigaction(signal, &raw const default, std::ptr::null_mut()) };
}

// From `linux/random.h`; libc has neither. The numbers are the same on x86-64 and on 64-bit ARM.
const RNDADDENTROPY: libc::Ioctl = 0x4008_5203;
const RNDRESEEDCRNG: libc::Ioctl = 0x5207;

/// Adds to the kernel's random numbers, counts it as good, and has the generator restart from it at once:
/// `random(4)`. Needs a descriptor of `/dev/urandom`, and root.
pub fn stir_random<const SIZE: usize>(random: impl AsFd, entropy: &[u8; SIZE]) -> io::Result<()> {
    /// `struct rand_pool_info` of `linux/random.h`.
    #[repr(C)]
    struct Pool<const SIZE: usize> {
        bits: i32,
        bytes: i32,
        entropy: [u8; SIZE],
    }
    let pool = Pool { bits: SIZE as i32 * 8, bytes: SIZE as i32, entropy: *entropy };
    let random = random.as_fd().as_raw_fd();
    // SAFETY: the kernel reads the header and as many bytes as it announces, all of them in `pool`.
    Errno::result(unsafe { libc::ioctl(random, RNDADDENTROPY, &raw const pool) })?;
    // SAFETY: it takes no argument.
    Errno::result(unsafe { libc::ioctl(random, RNDRESEEDCRNG) })?;
    Ok(())
}

/// Bytes that wait in a pipe: `FIONREAD` of `pipe(7)`.
pub fn waiting_in(pipe: impl AsFd) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one number, for which there is room.
    Errno::result(unsafe { libc::ioctl(pipe.as_fd().as_raw_fd(), libc::FIONREAD, &raw mut bytes) })?;
    Ok(u64::try_from(bytes).unwrap_or_default())
}

/// Gives memory that was freed back to the kernel: `malloc_trim(3)`.
pub fn give_memory_back() {
    // SAFETY: it takes a number, and locks what it touches.
    unsafe { libc::malloc_trim(0) };
}

/// What a mount forbids: `mount_setattr(2)`.
#[derive(Clone, Copy)]
pub struct MountAttributes(u64);

impl MountAttributes {
    pub const RDONLY: Self = Self(libc::MOUNT_ATTR_RDONLY);
    /// Opening devices by nodes that are in it.
    pub const NODEV: Self = Self(libc::MOUNT_ATTR_NODEV);
}

impl BitOr for MountAttributes {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A copy of all mounts at and below a path, attached nowhere: `open_tree(2)`.
pub fn open_tree(path: &CStr) -> Result<OwnedFd, Errno> {
    let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC | libc::AT_RECURSIVE as libc::c_uint;
    // SAFETY: the path ends with its NUL and is valid for the call.
    let fd = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) };
    // SAFETY: a new descriptor, which nobody else knows.
    Errno::result(fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Attaches such a copy at a path, over what is there: `move_mount(2)`.
pub fn move_mount(tree: BorrowedFd, path: &CStr) -> Result<(), Errno> {
    let flags = libc::MOVE_MOUNT_F_EMPTY_PATH | libc::MOVE_MOUNT_T_SYMLINKS;
    let (tree, nothing) = (tree.as_raw_fd(), c"".as_ptr());
    // SAFETY: both paths end with their NUL and are valid for the call.
    let moved =
        unsafe { libc::syscall(libc::SYS_move_mount, tree, nothing, libc::AT_FDCWD, path.as_ptr(), flags) };
    Errno::result(moved).map(drop)
}

/// Gives a mount and all below it these attributes, in addition to those that they have.
pub fn set_mounts(top: BorrowedFd, attributes: MountAttributes) -> Result<(), Errno> {
    change_mounts(top, attributes.0, None, libc::AT_RECURSIVE)
}

/// Has all files below a mount, which is attached nowhere, owned as a user namespace maps owners. `EINVAL` where a file system
/// knows no such thing.
pub fn map_owners(top: BorrowedFd, namespace: BorrowedFd) -> Result<(), Errno> {
    change_mounts(top, libc::MOUNT_ATTR_IDMAP, Some(namespace), libc::AT_RECURSIVE)
}

pub fn set_mount(mount: BorrowedFd, attributes: MountAttributes) -> Result<(), Errno> {
    change_mounts(mount, attributes.0, None, 0)
}

fn change_mounts(mount: BorrowedFd, set: u64, owners: Option<BorrowedFd>, flags: i32) -> Result<(), Errno> {
    let userns_fd = owners.map_or(0, |namespace| namespace.as_raw_fd() as u64);
    let attributes = libc::mount_attr { attr_set: set, attr_clr: 0, propagation: 0, userns_fd };
    let (flags, size) = (libc::AT_EMPTY_PATH | flags, size_of::<libc::mount_attr>());
    let (mount, nothing) = (mount.as_raw_fd(), c"".as_ptr());
    // SAFETY: the structure is as long as is said, and valid for the call.
    let changed =
        unsafe { libc::syscall(libc::SYS_mount_setattr, mount, nothing, flags, &raw const attributes, size) };
    Errno::result(changed).map(drop)
}

/// A datagram socket of netlink(7), on which nothing is sent yet: a write goes to the kernel, a read is what it answers.
pub fn netlink(protocol: i32) -> Result<OwnedFd, Errno> {
    // SAFETY: it takes three numbers.
    let fd = unsafe {
        libc::socket(libc::AF_NETLINK, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, protocol as libc::c_int)
    };
    // SAFETY: a new descriptor, which nobody else knows.
    Errno::result(fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Copies this process, which must have one thread; `None` in the copy: `fork(2)`.
pub fn fork() -> Result<Option<Pid>, Errno> {
    // SAFETY: no other thread could hold a lock that the copy waits for.
    let pid = Errno::result(unsafe { libc::fork() })?;
    Ok((pid > 0).then(|| Pid::from_raw(pid)))
}

/// Waits for any child to end: `waitpid(2)`, of which `nix` knows no real-time signals.
pub fn wait_for_any() -> Result<(Pid, ExitStatus), Errno> {
    let mut status = 0;
    // SAFETY: the pointer is valid for the call.
    let pid = Errno::result(unsafe { libc::waitpid(-1, &raw mut status, 0) })?;
    Ok((Pid::from_raw(pid), ExitStatus::from_raw(status)))
}

/// Ends this process at once, as another one has ended; without a core file, which was for that one to leave.
pub fn end_as(status: ExitStatus) -> ! {
    if let Some(signal) = status.signal() {
        let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
        set_default_action(signal);
        // SAFETY: it takes a number.
        unsafe { libc::raise(signal) };
        let _ = SigSet::empty().thread_set_mask();
    }
    // SAFETY: it takes a number and never returns.
    unsafe { libc::_exit(status.code().unwrap_or(127)) }
}

/// Closes all file descriptors but one, whoever believes to own them: only for a process that does nothing more.
pub fn close_all_but(kept: RawFd) {
    let from_to = |first: RawFd, last: libc::c_uint| {
        // SAFETY: it takes three numbers; nothing in this process uses one of the descriptors again.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    };
    if let Some(last) = kept.checked_sub(1).and_then(|last| libc::c_uint::try_from(last).ok()) {
        from_to(0, last);
    }
    from_to(kept + 1, libc::c_uint::MAX);
}

/// Starts the interface `lo` of this network namespace: `netdevice(7)`.
pub fn start_loopback() -> Result<(), Errno> {
    // SAFETY: it takes three numbers.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    // SAFETY: a new descriptor, which nobody else knows.
    let socket = Errno::result(socket).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })?;
    // SAFETY: an all-zero ifreq is a valid value of that plain C struct.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (letter, byte) in request.ifr_name.iter_mut().zip(*b"lo") {
        *letter = byte as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the kernel reads the structure, which is valid for the call.
    Errno::result(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) })
        .map(drop)
}

// From `linux/fs.h`; libc has it not.
const BLKFLSBUF: libc::Ioctl = 0x1261;

/// Writes back what the kernel's cache of a block device holds, and empties it. Needs `CAP_SYS_ADMIN`.
pub fn flush_cache(device: impl AsFd) -> Result<(), Errno> {
    // SAFETY: it takes no argument.
    Errno::result(unsafe { libc::ioctl(device.as_fd().as_raw_fd(), BLKFLSBUF, 0) }).map(drop)
}

/// Installs a filter of system calls: `seccomp(2)`. Kernels before 5.16 would else take every process with a filter for
/// one that must be kept from speculating, which costs far more than the filter.
pub fn filter_calls(program: BpfProgramRef) -> Result<(), Errno> {
    // Both structures are the kernel's: `struct sock_filter`.
    let filter = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(|_| Errno::E2BIG)?,
        filter: program.as_ptr().cast::<libc::sock_filter>().cast_mut(),
    };
    let flags = libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    // SAFETY: the kernel copies the program, whose length is as said, and keeps neither pointer.
    let installed =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const filter) };
    Errno::result(installed).map(drop)
}
