//! `perf_event_open(2)`, of which neither `libc` nor `nix` has the structure.

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;

/// `struct perf_event_attr` of `linux/perf_event.h`, as far as its first published version goes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
}

const DISABLED: u64 = 1;
const INHERIT: u64 = 1 << 1;
const ENABLE_ON_EXEC: u64 = 1 << 12;
const TIMES: u64 = 3; // PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING
const CLOSE_ON_EXEC: libc::c_ulong = 8; // PERF_FLAG_FD_CLOEXEC

#[derive(Debug, Clone, Copy)]
pub enum Scope {
    /// All that happens on this CPU, from now on.
    Cpu(i32),
    /// What this process and all that it starts do, from its next exec on.
    FromExec(i32),
}

/// Opens a counter. A read gives three numbers of 64 bits: the count, and how long, in ns, it was wanted and counting.
pub fn open_counter(kind: u32, config: u64, scope: Scope) -> Result<OwnedFd, Errno> {
    let (process, cpu, flags) = match scope {
        Scope::Cpu(cpu) => (-1, cpu, 0),
        Scope::FromExec(process) => (process, -1, DISABLED | INHERIT | ENABLE_ON_EXEC),
    };
    let attributes = Attributes {
        kind,
        size: size_of::<Attributes>() as u32,
        config,
        sample_period: 0,
        sample_type: 0,
        read_format: TIMES,
        flags,
        wakeup_events: 0,
        breakpoint_type: 0,
        config1: 0,
    };
    let no_group: libc::c_int = -1;
    // SAFETY: the structure is as long as it says, and valid for the call.
    let fd = unsafe {
        libc::syscall(libc::SYS_perf_event_open, &raw const attributes, process, cpu, no_group, CLOSE_ON_EXEC)
    };
    // SAFETY: a new descriptor, which nobody else knows.
    Errno::result(fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}
