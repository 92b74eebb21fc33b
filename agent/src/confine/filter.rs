//! Filters of system calls: what is listed in [`calls`](super::calls) is made, all else is refused with `EPERM`.
//!
//! The kernel looks at most of them in a bitmap (since Linux 5.11), without running the filter.
//!
//! Source: `seccomp(2)`.

use std::collections::BTreeMap;

use libc::c_long;
use nix::errno::Errno;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

use super::Obstacle;
use super::calls::{CALLS, FAMILIES, IO_URING, NEWER, OLDER, REQUESTS};
use crate::sys;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// `CLONE_NEW…` of sched.h: a process in a user namespace of its own would have all capabilities there.
const NAMESPACES: u64 = 0x7e02_0080;
/// personality(2) that asks for what is now.
const WHAT_IS: u64 = 0xffff_ffff;

/// Refuses all other system calls of this process, and of all that it starts, for good. It must have `no_new_privs`.
pub fn refuse_others(io_uring: bool) -> Result<(), Obstacle> {
    let programs = [allowed(io_uring), without_clone3()];
    for program in programs {
        let program =
            program.map_err(|error| Obstacle { what: format!("seccomp: {error}"), errno: Errno::EINVAL })?;
        sys::filter_calls(&program).map_err(Obstacle::of("seccomp"))?;
    }
    Ok(())
}

fn allowed(io_uring: bool) -> Result<BpfProgram, BackendError> {
    let further = if io_uring { IO_URING } else { &[] };
    let calls = [CALLS, NEWER, OLDER, further].into_iter().flatten();
    let mut rules: Rules = calls.map(|&call| (number(call), vec![])).collect();
    let requests = REQUESTS.iter().map(|&request| is(1, u64::from(request as u32)));
    rules.insert(number(libc::SYS_ioctl), requests.collect::<Result<_, _>>()?);
    let families = FAMILIES.iter().map(|&family| is(0, family as u64));
    rules.insert(number(libc::SYS_socket), families.collect::<Result<_, _>>()?);
    rules.insert(number(libc::SYS_personality), vec![is(0, 0)?, is(0, WHAT_IS)?]);
    for call in [libc::SYS_clone, libc::SYS_unshare] {
        let no_namespace = compare(0, SeccompCmpOp::MaskedEq(NAMESPACES), 0)?;
        rules.insert(number(call), vec![no_namespace]);
    }
    program(rules, SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow)
}

/// A filter can't see the flags of clone3(2). Where it doesn't exist, the C library calls clone(2).
fn without_clone3() -> Result<BpfProgram, BackendError> {
    let rules = Rules::from([(number(libc::SYS_clone3), vec![])]);
    program(rules, SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS as u32))
}

fn program(rules: Rules, others: SeccompAction, listed: SeccompAction) -> Result<BpfProgram, BackendError> {
    SeccompFilter::new(rules, others, listed, std::env::consts::ARCH.try_into()?)?.try_into()
}

/// The argument is this number; the kernel looks at no more than its lower half.
fn is(argument: u8, value: u64) -> Result<SeccompRule, BackendError> {
    compare(argument, SeccompCmpOp::Eq, value)
}

fn compare(argument: u8, how: SeccompCmpOp, value: u64) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(vec![SeccompCondition::new(argument, SeccompCmpArgLen::Dword, how, value)?])
}

#[allow(clippy::useless_conversion)] // a long is shorter on other machines
fn number(call: c_long) -> i64 {
    i64::from(call)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_make_programs_that_the_kernel_takes() {
        let most = 4096; // BPF_MAXINSNS
        assert!(allowed(true).unwrap().len() < most);
        assert!(without_clone3().is_ok());
    }
}
