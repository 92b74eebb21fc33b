//! Filters of system calls: what is listed in [`calls`](super::calls) is made, all else is refused with `EPERM`.
//!
//! The kernel looks at most of them in a bitmap (since Linux 5.11), without running the filter.
//!
//! Source: `seccomp(2)`.

use std::collections::BTreeMap;

use libc::{Ioctl, c_long};
use nix::errno::Errno;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

use super::Obstacle;
use super::calls::{CALLS, DECLARED, FAMILIES, NEWER, OLDER, REQUESTS};
use crate::sys;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// `CLONE_NEW…` of sched.h: a process in a user namespace of its own would have all capabilities there.
const NAMESPACES: u64 = 0x7e02_0080;
/// personality(2) that asks for what is now.
const WHAT_IS: u64 = 0xffff_ffff;

/// Refuses all other system calls of this process, and of all that it starts, for good. `declared`: the names of
/// further requests of ioctl(2). It must have `no_new_privs`.
pub fn refuse_others(declared: &[String]) -> Result<(), Obstacle> {
    let requests = declared.iter().map(|name| named(name)).collect::<Result<Vec<_>, _>>()?;
    let programs = [allowed(&requests), without_clone3()];
    for program in programs {
        let program =
            program.map_err(|error| Obstacle { what: format!("seccomp: {error}"), errno: Errno::EINVAL })?;
        sys::filter_calls(&program).map_err(Obstacle::of("seccomp"))?;
    }
    Ok(())
}

fn named(name: &str) -> Result<Ioctl, Obstacle> {
    let found = DECLARED.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
    found.ok_or_else(|| Obstacle { what: format!("unknown ioctl {name:?}"), errno: Errno::EINVAL })
}

fn allowed(requests: &[Ioctl]) -> Result<BpfProgram, BackendError> {
    let mut rules: Rules =
        [CALLS, NEWER, OLDER].into_iter().flatten().map(|&call| (number(call), vec![])).collect();
    let requests = REQUESTS.iter().chain(requests).map(|&request| is(1, u64::from(request as u32)));
    rules.insert(number(libc::SYS_ioctl), requests.collect::<Result<_, _>>()?);
    let families = FAMILIES.iter().map(|&family| is(0, family as u64));
    rules.insert(number(libc::SYS_socket), families.collect::<Result<_, _>>()?);
    rules.insert(number(libc::SYS_personality), vec![is(0, 0)?, is(0, WHAT_IS)?]);
    let no_namespace = compare(0, SeccompCmpOp::MaskedEq(NAMESPACES), 0)?;
    rules.insert(number(libc::SYS_clone), vec![no_namespace]);
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
        assert!(allowed(&[]).unwrap().len() < most);
        assert!(without_clone3().is_ok());
    }

    #[test]
    fn only_a_request_that_can_be_declared_is_added() {
        assert!(named("FITRIM").is_ok());
        assert!(named("FIFREEZE").is_err());
    }
}
