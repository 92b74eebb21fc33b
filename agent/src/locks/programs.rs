//! Loading the eBPF programs and attaching them.

use std::path::Path;

use aya::programs::tp_btf::BtfTracePointLink;
use aya::programs::{BtfTracePoint, ProgramError};
use aya::{BtfError, Ebpf, VerifierLogLevel, include_bytes_aligned};

use super::functions::MAX_RANGES;
use crate::trace::btf;
use crate::trace::programs::{Failure, allow_files, kernel_release, loader_without_types, missed};
use crate::watching::WatchError;

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/locks.o"));

/// The tracepoints, and the programs named after them; the end first, so that no wait begins whose end is not seen.
const PROGRAMS: [&str; 2] = ["contention_end", "contention_begin"];

pub struct Attached {
    pub ebpf: Ebpf,
    links: Vec<BtfTracePointLink>,
}

impl Attached {
    /// From here on nothing is counted any more; what was counted stays.
    pub fn detach(&mut self) {
        // Beginnings first: a wait whose end is not seen would be one in progress.
        while self.links.pop().is_some() {}
    }

    /// How often a program could not run, since it was already running on that CPU; `None` where the kernel doesn't
    /// count that.
    pub fn missed(&self) -> Option<u64> {
        missed(&self.ebpf)
    }
}

/// Loads and attaches both; `locking` are the addresses of functions that lock, of which there is room for `MAX_RANGES`.
pub fn attach(cgroup: u64, locking: &[[u64; 2]]) -> Result<Attached, WatchError> {
    allow_files()
        .and_then(|()| attach_both(cgroup, locking))
        .map_err(|why| why.of_watching("lock waits can't be traced"))
}

fn attach_both(cgroup: u64, locking: &[[u64; 2]]) -> Result<Attached, Failure> {
    let types = btf::of_kernel(Path::new(btf::KERNEL), &btf::LOCKS).map_err(|error| Failure::of(&error))?;
    let mut ranges = [[0_u64; 2]; MAX_RANGES];
    let many = locking.len().min(MAX_RANGES);
    ranges[..many].copy_from_slice(&locking[..many]);
    let mut loader = loader_without_types();
    loader.btf(Some(&types));
    loader.verifier_log_level(VerifierLogLevel::DISABLE); // writing it takes most of the time that loading takes
    let count = many as u32; // at most MAX_RANGES
    loader.set_global("locking", &ranges, true).set_global("locking_count", &count, true);
    loader.set_global("own_cgroup", &cgroup, true);
    let mut ebpf = loader.load(OBJECT)?;
    let mut links = vec![];
    for name in PROGRAMS {
        let missing = || Failure::OfKernel(format!("the object has no program {name}"));
        let program: &mut BtfTracePoint = ebpf.program_mut(name).ok_or_else(missing)?.try_into()?;
        program.load(name, &types).map_err(of_tracepoint)?;
        let link = program.attach()?;
        links.push(program.take_link(link)?);
    }
    Ok(Attached { ebpf, links })
}

/// A kernel without a tracepoint has no type of its name.
fn of_tracepoint(error: ProgramError) -> Failure {
    match error {
        ProgramError::Btf(BtfError::UnknownBtfTypeName { .. }) => Failure::OfKernel(format!(
            "Linux {} has no tracepoints lock:contention_begin and lock:contention_end; 5.19 and later have them",
            kernel_release()
        )),
        error => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_the_tracepoints_is_named() {
        let type_name = "btf_trace_contention_end".to_owned();
        let said = of_tracepoint(BtfError::UnknownBtfTypeName { type_name }.into()).to_string();
        assert!(said.ends_with("lock:contention_end; 5.19 and later have them"), "{said}");
    }
}
