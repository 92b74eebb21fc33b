//! Loading the eBPF programs and attaching them, to the better hook that the kernel has.

use std::error::Error;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::{fs, io};

use aya::programs::tp_btf::BtfTracePointLink;
use aya::programs::trace_point::TracePointLink;
use aya::programs::{BtfTracePoint, Program, ProgramError, TracePoint};
use aya::{Btf, Ebpf, EbpfError, EbpfLoader, VerifierLogLevel, include_bytes_aligned};
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::utsname::uname;
use nix::unistd::geteuid;

use super::btf;
use super::disks::Extent;
use super::filters::Filters;
use super::options::{Hook, TraceOptions};
use super::tracefs::{self, NoTracefs};
use crate::watching::WatchError;

static BTF_OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/block.o"));
static TRACEPOINT_OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/block_tracepoint.o"));

const ISSUE: &str = "block_rq_issue";
const COMPLETE: &str = "block_rq_complete";
const REQUEUE: &str = "block_rq_requeue";
const BIOS: [&str; 2] = ["block_bio_complete", "block_bio_queue"];
/// Those that older kernels lack are left out.
const FURTHER: [&str; 5] =
    ["block_rq_merge", "block_rq_error", "block_bio_backmerge", "block_bio_frontmerge", "block_split"];

const REQUEST_SETS: u32 = 512;
const BIN_SETS: u32 = 64;
const EVENTS_BYTES: u32 = 8 << 20;

/// Maps, programs and their links are some 40.
const FILES: u64 = 64;
pub(super) const NOT_TRACED: &str = "block I/O can't be traced";

/// Why a hook cannot be used, or one of its programs.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum Failure {
    #[error(
        "this process may not load eBPF programs: that takes CAP_BPF and CAP_PERFMON, which root of a container may lack, and a seccomp filter may forbid it"
    )]
    NotAllowed,
    #[error(
        "it takes {FILES} open files, and this process may have {allowed}: raise the limit, as by `ulimit -n {FILES}`"
    )]
    TooFewFiles { allowed: u64 },
    #[error("the kernel has no memory left for the eBPF programs and their counters")]
    NoMemory,
    #[error(transparent)]
    NoTracefs(#[from] NoTracefs),
    #[error("{0}")]
    OfKernel(String),
}

impl Failure {
    /// Whether another hook or program may work all the same.
    fn is_of_kernel(&self) -> bool {
        matches!(self, Self::NoTracefs(_) | Self::OfKernel(_))
    }

    /// As what ends a command; `what` can't be done.
    pub(crate) fn of_watching(&self, what: &str) -> WatchError {
        let why = match self {
            Self::NotAllowed | Self::NoTracefs(NoTracefs::NotAllowed) if !geteuid().is_root() => {
                "only root may, or whoever has CAP_BPF and CAP_PERFMON".into()
            }
            why => why.to_string(),
        };
        WatchError::Refused(format!("{what}: {why}"))
    }

    pub(crate) fn of(error: &(dyn Error + 'static)) -> Self {
        let mut causes = vec![];
        let mut next = Some(error);
        while let Some(error) = next {
            match error.downcast_ref().and_then(io::Error::raw_os_error).map(Errno::from_raw) {
                Some(Errno::EPERM) => return Self::NotAllowed,
                Some(Errno::EMFILE | Errno::ENFILE) => {
                    return Self::TooFewFiles {
                        allowed: getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft),
                    };
                }
                Some(Errno::ENOMEM) => return Self::NoMemory,
                _ => {}
            }
            let text = error.to_string();
            // The first line: a verifier's log, which follows, is for developers of programs.
            let line =
                text.lines().next().unwrap_or_default().trim_end_matches(" Verifier output:").to_owned();
            if !causes.iter().any(|known: &String| known.ends_with(&line)) {
                causes.push(line);
            }
            next = error.source();
        }
        Self::OfKernel(causes.join(": "))
    }
}

impl From<ProgramError> for Failure {
    fn from(error: ProgramError) -> Self {
        Self::of(&error)
    }
}

impl From<EbpfError> for Failure {
    fn from(error: EbpfError) -> Self {
        Self::of(&error)
    }
}

pub struct Attached {
    pub ebpf: Ebpf,
    links: Vec<Link>,
    pub hook: Hook,
    /// Why not to the better one.
    pub reason: Option<String>,
    /// Events that this kernel can't tell.
    pub without: Vec<&'static str>,
}

/// What holds a program at its hook for as long as it lives.
#[expect(dead_code, reason = "they are only kept, and dropped")]
enum Link {
    Btf(BtfTracePointLink),
    Tracepoint(TracePointLink),
}

/// Raises the limit of open files as far as needed. With too few, a program that cannot be attached would look like one
/// that the kernel lacks, and what the kernel missed could not be read at the end.
pub(crate) fn allow_files() -> Result<(), Failure> {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return Ok(()) };
    if soft >= FILES || setrlimit(Resource::RLIMIT_NOFILE, FILES, hard.max(FILES)).is_ok() {
        return Ok(());
    }
    Err(Failure::TooFewFiles { allowed: hard })
}

/// Raises it as far as this process may: counters and samples of many CPUs take several files for each.
pub(crate) fn allow_more_files() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// Loads and attaches all programs.
pub fn attach(options: &TraceOptions, extents: &[Extent]) -> Result<Attached, WatchError> {
    attach_to_best(options, &Filters::new(options, extents)).map_err(|why| why.of_watching(NOT_TRACED))
}

fn attach_to_best(options: &TraceOptions, filters: &Filters) -> Result<Attached, Failure> {
    let mut reason = match options.hook {
        Some(Hook::Tracepoint) => "it was asked for".to_owned(),
        chosen => match attach_btf(filters) {
            Ok(made) => return Ok(made.attached(Hook::Btf, None)),
            Err(why) if chosen.is_some() || !why.is_of_kernel() => return Err(why),
            Err(why) => why.to_string(),
        },
    };
    // Only who issues a request is looked up in the kernel's own structures. Where tracefs is, nothing else may be.
    let types = (filters.own_cgroup != 0).then(|| btf::of_kernel(Path::new(btf::KERNEL), &btf::TASKS));
    let types = types.and_then(Result::ok);
    match tracefs::with(|| attach_tracepoints(filters, types.as_ref())) {
        Ok(made) => {
            if filters.own_cgroup != 0 && types.is_none() {
                reason += "; without the kernel's types, its own threads are not told from other processes";
            }
            Ok(made.attached(Hook::Tracepoint, Some(reason)))
        }
        Err(why) if options.hook.is_some() || !why.is_of_kernel() || why == NoTracefs::NotAllowed.into() => {
            Err(why)
        }
        Err(why) => Err(Failure::OfKernel(format!("with BTF: {reason}; with tracepoints: {why}"))),
    }
}

impl Attached {
    /// From here on nothing is counted any more; what was counted stays.
    pub fn detach(&mut self) {
        // The last first, so issues before completions: each takes long on a busy machine, as attaching does, and a
        // request that is issued after these are gone would be counted and never timed.
        while self.links.pop().is_some() {}
    }

    /// How often a program could not run, since it was already running on that CPU; `None` where the kernel doesn't
    /// count that.
    pub fn missed(&self) -> Option<u64> {
        if self.hook == Hook::Tracepoint && !counts_misses_at_tracepoints(&kernel_release()) {
            return None;
        }
        missed(&self.ebpf)
    }
}

/// How often programs could not run, since they were already running on that CPU; `None` where the kernel doesn't count
/// that.
pub(crate) fn missed(ebpf: &Ebpf) -> Option<u64> {
    ebpf.programs().map(|(_, program)| recursion_misses(program)).sum()
}

/// Since 6.7 (`trace_call_bpf` in kernel/trace/bpf_trace.c).
pub(crate) fn counts_misses_at_tracepoints(release: &str) -> bool {
    let mut numbers = release.split(|sign: char| !sign.is_ascii_digit()).map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else { return false };
    (major, minor) >= (6, 7)
}

/// As `uname -r` prints it.
pub(crate) fn kernel_release() -> String {
    uname().map(|name| name.release().to_string_lossy().into_owned()).unwrap_or_default()
}

/// None of one that this kernel lacks.
fn recursion_misses(program: &Program) -> Option<u64> {
    let Ok(fd) = program.fd().map(|fd| fd.as_fd().as_raw_fd()) else { return Some(0) };
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("recursion_misses:"))?.trim().parse().ok()
}

struct Made {
    ebpf: Ebpf,
    links: Vec<Link>,
    without: Vec<&'static str>,
}

impl Made {
    fn attached(self, hook: Hook, reason: Option<String>) -> Attached {
        let Self { ebpf, links, without } = self;
        Attached { ebpf, links, hook, reason, without }
    }
}

fn attach_btf(filters: &Filters) -> Result<Made, Failure> {
    let types = btf::of_kernel(Path::new(btf::KERNEL), &btf::BLOCK).map_err(|error| Failure::of(&error))?;
    let ebpf = load(filters, Some(&types), BTF_OBJECT, &[])?;
    let timed = filters.latency == 1;
    attach_each(ebpf, filters, timed, |program, name| {
        let program: &mut BtfTracePoint = program.try_into()?;
        program.load(name, &types)?;
        let link = program.attach()?;
        Ok(Link::Btf(program.take_link(link)?))
    })
}

fn attach_tracepoints(filters: &Filters, types: Option<&Btf>) -> Result<Made, Failure> {
    if filters.takes_bios {
        return Err(Failure::OfKernel(
            "a disk that makes no requests, such as a zvol or one of device mapper, can only be traced with BTF"
                .into(),
        ));
    }
    let letters = [
        ("rwbs_of_issue", "block_rq_issue"),
        ("rwbs_of_complete", "block_rq_complete"),
        ("rwbs_of_requeue", "block_rq_requeue"),
        ("rwbs_of_bio", "block_bio_backmerge"),
        ("rwbs_of_split", "block_split"),
    ]
    .into_iter()
    .map(|(constant, event)| Ok((constant, tracefs::field_offset("block", event, "rwbs")?)))
    .collect::<Result<Vec<_>, NoTracefs>>()?;
    let ebpf = load(filters, types, TRACEPOINT_OBJECT, &letters)?;
    attach_each(ebpf, filters, true, |program, name| {
        let program: &mut TracePoint = program.try_into()?;
        program.load()?;
        let link = program.attach("block", name)?;
        Ok(Link::Tracepoint(program.take_link(link)?))
    })
}

fn attach_each(
    mut ebpf: Ebpf,
    filters: &Filters,
    sees_ends: bool,
    mut attach: impl FnMut(&mut Program, &'static str) -> Result<Link, Failure>,
) -> Result<Made, Failure> {
    let (mut links, mut without) = (vec![], vec![]);
    // Completions and requeues before issues: a request that is issued before they are seen would be counted and never
    // timed, or counted twice. The rest comes last, since each attachment may wait for all CPUs, which takes long on a
    // busy machine.
    let ends = sees_ends.then_some(COMPLETE);
    let bios = BIOS.into_iter().filter(|_| filters.takes_bios);
    for name in ends.into_iter().chain([REQUEUE, ISSUE]).chain(bios).chain(FURTHER) {
        let missing = || Failure::OfKernel(format!("the object has no program {name}"));
        match attach(ebpf.program_mut(name).ok_or_else(missing)?, name) {
            Ok(link) => links.push(link),
            Err(why) if why.is_of_kernel() && (name == REQUEUE || FURTHER.contains(&name)) => {
                without.push(name)
            }
            Err(Failure::OfKernel(why)) => return Err(Failure::OfKernel(format!("{name}: {why}"))),
            Err(why) => return Err(why),
        }
    }
    Ok(Made { ebpf, links, without })
}

fn load(
    filters: &Filters,
    types: Option<&Btf>,
    object: &[u8],
    letters: &[(&'static str, u32)],
) -> Result<Ebpf, Failure> {
    let mut loader = loader_without_types();
    loader.btf(types);
    let knows_tasks = u8::from(types.is_some());
    loader.set_global("knows_tasks", &knows_tasks, true);
    loader.verifier_log_level(VerifierLogLevel::DISABLE); // writing it takes most of the time that loading takes
    filters.set(&mut loader);
    for (name, offset) in letters {
        loader.set_global(name, offset, true);
    }
    loader
        .set_max_entries("REQUESTS", REQUEST_SETS * filters.cpus)
        .set_max_entries("BINS", BIN_SETS * filters.cpus)
        .set_max_entries("EVENTS", if filters.events == 1 { EVENTS_BYTES } else { 4096 });
    Ok(loader.load(object)?)
}

/// `EbpfLoader::new` reads all of the kernel's types, though it is given those that are needed right after. With no file
/// left to open it goes without: half the time of all loading, and 15 MB. No other thread opens files meanwhile.
pub(crate) fn loader_without_types<'a>() -> EbpfLoader<'a> {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return EbpfLoader::new() };
    let limited = setrlimit(Resource::RLIMIT_NOFILE, 0, hard);
    let loader = EbpfLoader::new();
    if limited.is_ok() {
        // Back to what it was, which is always allowed.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, soft, hard);
    }
    loader
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_tracepoint_missed_is_known_since_linux_6_7() {
        for known in ["6.7.0", "6.7-rc1", "6.18.44-fc", "7.0", "10.1"] {
            assert!(counts_misses_at_tracepoints(known), "{known}");
        }
        for unknown in ["6.6.99", "5.15.0-105-generic", "4.19", "", "x.y"] {
            assert!(!counts_misses_at_tracepoints(unknown), "{unknown}");
        }
    }
}
