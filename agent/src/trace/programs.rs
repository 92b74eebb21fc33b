//! Loading the eBPF programs and attaching them, to the better hook that the kernel has.

use std::error::Error;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::{fs, io};

use aya::programs::tp_btf::BtfTracePointLink;
use aya::programs::trace_point::TracePointLink;
use aya::programs::{BtfTracePoint, Program, TracePoint};
use aya::{Btf, Ebpf, EbpfLoader, VerifierLogLevel, include_bytes_aligned};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::geteuid;

use super::btf;
use super::disks::Extent;
use super::options::{COMM_SIZE, Hook, MAX_DISKS, MAX_VALUES, TraceOptions};

static BTF_OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/block.o"));
static TRACEPOINT_OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/block_tracepoint.o"));

const ISSUE: &str = "block_rq_issue";
const COMPLETE: &str = "block_rq_complete";
const BIOS: [&str; 2] = ["block_bio_complete", "block_bio_queue"];
/// Those that older kernels lack are left out.
const FURTHER: [&str; 6] = [
    "block_rq_requeue",
    "block_rq_merge",
    "block_rq_error",
    "block_bio_backmerge",
    "block_bio_frontmerge",
    "block_split",
];

const NOT_ALLOWED: &str = "this process may not load eBPF programs: that takes CAP_BPF and CAP_PERFMON, which root of a container may lack, and a seccomp filter may forbid it";

const REQUEST_SETS: u32 = 512;
const BIN_SETS: u32 = 256;
const EVENTS_BYTES: u32 = 8 << 20;

/// Why nothing can be traced.
#[derive(Debug, thiserror::Error)]
#[error("block I/O can't be traced: {0}")]
pub struct Refused(pub String);

/// Programs at work.
pub struct Attached {
    /// The maps and programs.
    pub ebpf: Ebpf,
    links: Vec<Link>,
    /// Where they are attached.
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

/// Loads and attaches all programs.
pub fn attach(options: &TraceOptions, extents: &[Extent]) -> Result<Attached, Refused> {
    let filters = Filters::new(options, extents);
    let reason = match options.hook {
        Some(Hook::Tracepoint) => "it was asked for".to_owned(),
        _ => match attach_btf(&filters) {
            Ok(made) => return Ok(made.attached(Hook::Btf, None)),
            Err(why) if options.hook == Some(Hook::Btf) && geteuid().is_root() => return Err(Refused(why)),
            Err(why) => why,
        },
    };
    match attach_tracepoints(&filters) {
        Ok(made) => Ok(made.attached(Hook::Tracepoint, Some(reason))),
        Err(_) if !geteuid().is_root() => {
            Err(Refused("only root may, or whoever has CAP_BPF and CAP_PERFMON".into()))
        }
        Err(why) if why == reason || options.hook.is_some() => Err(Refused(why)),
        Err(why) => Err(Refused(format!("with BTF: {reason}; with tracepoints: {why}"))),
    }
}

impl Attached {
    /// From here on nothing is counted any more; what was counted stays.
    pub fn detach(&mut self) {
        self.links.clear();
    }

    /// How often a program could not run, since it was already running on that CPU.
    pub fn missed(&self) -> u64 {
        self.ebpf.programs().filter_map(|(_, program)| recursion_misses(program)).sum()
    }
}

fn recursion_misses(program: &Program) -> Option<u64> {
    let fd = program.fd().ok()?.as_fd().as_raw_fd();
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

fn attach_btf(filters: &Filters) -> Result<Made, String> {
    let types = btf::of_kernel(Path::new(btf::KERNEL)).map_err(|error| error.to_string())?;
    let ebpf = load(filters, Some(&types), BTF_OBJECT, &[])?;
    attach_each(ebpf, filters, |program, name| {
        let program: &mut BtfTracePoint = program.try_into().map_err(|error| whole(&error))?;
        program.load(name, &types).map_err(|error| whole(&error))?;
        let link = program.attach().and_then(|id| program.take_link(id)).map_err(|error| whole(&error))?;
        Ok(Link::Btf(link))
    })
}

fn attach_tracepoints(filters: &Filters) -> Result<Made, String> {
    if filters.takes_bios {
        return Err("a disk that makes no requests, such as a zvol or one of device mapper, can only be traced with BTF".into());
    }
    let letters = [
        ("rwbs_of_issue", rwbs_offset("block_rq_issue")?),
        ("rwbs_of_complete", rwbs_offset("block_rq_complete")?),
        ("rwbs_of_requeue", rwbs_offset("block_rq_requeue")?),
        ("rwbs_of_bio", rwbs_offset("block_bio_backmerge")?),
        ("rwbs_of_split", rwbs_offset("block_split")?),
    ];
    let ebpf = load(filters, None, TRACEPOINT_OBJECT, &letters)?;
    attach_each(ebpf, filters, |program, name| {
        let program: &mut TracePoint = program.try_into().map_err(|error| whole(&error))?;
        program.load().map_err(|error| whole(&error))?;
        let link = program
            .attach("block", name)
            .and_then(|id| program.take_link(id))
            .map_err(|error| whole(&error))?;
        Ok(Link::Tracepoint(link))
    })
}

fn attach_each(
    mut ebpf: Ebpf,
    filters: &Filters,
    mut attach: impl FnMut(&mut Program, &'static str) -> Result<Link, String>,
) -> Result<Made, String> {
    let (mut links, mut without) = (vec![], vec![]);
    // Completions before issues: a request that is issued before they are seen would be counted and never timed. The rest
    // comes last, since each attachment may wait for all CPUs, which takes long on a busy machine.
    let timed = (filters.latency == 1).then_some(COMPLETE);
    let bios = BIOS.into_iter().filter(|_| filters.takes_bios);
    for name in timed.into_iter().chain([ISSUE]).chain(bios).chain(FURTHER) {
        let program = ebpf.program_mut(name).ok_or_else(|| format!("the object has no program {name}"))?;
        match attach(program, name) {
            Ok(link) => links.push(link),
            Err(_) if FURTHER.contains(&name) => without.push(name),
            Err(why) => return Err(format!("{name}: {why}")),
        }
    }
    Ok(Made { ebpf, links, without })
}

fn load(
    filters: &Filters,
    types: Option<&Btf>,
    object: &[u8],
    letters: &[(&'static str, u32)],
) -> Result<Ebpf, String> {
    let mut loader = loader_without_types();
    loader.btf(types);
    loader.verifier_log_level(VerifierLogLevel::DISABLE); // writing it takes most of the time that loading takes
    filters.set(&mut loader);
    for (name, offset) in letters {
        loader.set_global(name, offset, true);
    }
    loader
        .set_max_entries("REQUESTS", REQUEST_SETS * filters.cpus)
        .set_max_entries("BINS", BIN_SETS * filters.cpus)
        .set_max_entries("EVENTS", if filters.events == 1 { EVENTS_BYTES } else { 4096 });
    loader.load(object).map_err(|error| whole(&error))
}

/// `EbpfLoader::new` reads all of the kernel's types, though it is given those that are needed right after. With no file
/// left to open it goes without: half the time of all loading, and 15 MB. This process has one thread.
fn loader_without_types<'a>() -> EbpfLoader<'a> {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return EbpfLoader::new() };
    let limited = setrlimit(Resource::RLIMIT_NOFILE, 0, hard);
    let loader = EbpfLoader::new();
    if limited.is_ok() {
        // Back to what it was, which is always allowed.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, soft, hard);
    }
    loader
}

/// Where the letters of operation and flags lie in an event, by tracefs.
fn rwbs_offset(event: &str) -> Result<u32, String> {
    let folders = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
    let texts = folders.map(|folder| fs::read_to_string(format!("{folder}/events/block/{event}/format")));
    let text = texts
        .into_iter()
        .find_map(Result::ok)
        .ok_or("tracefs can't be read (is it mounted, and are you root?)")?;
    parse_rwbs_offset(&text).ok_or_else(|| format!("the event {event} of this kernel has no field rwbs"))
}

fn parse_rwbs_offset(format: &str) -> Option<u32> {
    let line = format.lines().find(|line| line.contains("field:char rwbs["))?;
    line.split_once("offset:")?.1.split(';').next()?.parse().ok()
}

/// An error and all its causes, but for a verifier's log, which is for developers of programs.
fn whole(error: &(dyn Error + 'static)) -> String {
    let mut causes = vec![];
    let mut next = Some(error);
    while let Some(error) = next {
        if error.downcast_ref().and_then(io::Error::raw_os_error) == Some(libc::EPERM) {
            return NOT_ALLOWED.to_owned();
        }
        let text = error.to_string();
        let line = text.lines().next().unwrap_or_default().trim_end_matches(" Verifier output:").to_owned();
        if !causes.iter().any(|known: &String| known.ends_with(&line)) {
            causes.push(line);
        }
        next = error.source();
    }
    causes.join(": ")
}

/// The constants of `bpf/filter.h`, as they lie in memory there.
struct Filters {
    disk_count: u32,
    devices: [u32; MAX_DISKS],
    firsts: [u64; MAX_DISKS],
    ends: [u64; MAX_DISKS],
    operations: u32,
    length_count: u32,
    lengths: [u32; MAX_VALUES],
    alignment_count: u32,
    alignments: [u32; MAX_VALUES],
    comm_count: u32,
    comms: [[u8; COMM_SIZE]; MAX_VALUES],
    by_comm: u8,
    latency: u8,
    events: u8,
    cpus: u32,
    takes_bios: bool,
}

impl Filters {
    fn new(options: &TraceOptions, extents: &[Extent]) -> Self {
        let mut comms = [[0; COMM_SIZE]; MAX_VALUES];
        for (place, comm) in comms.iter_mut().zip(&options.comms) {
            place[..comm.len()].copy_from_slice(comm);
        }
        let bits = options.operations.iter().fold(0, |bits, operation| bits | 1 << operation);
        Self {
            disk_count: count(extents.len()),
            devices: filled(extents.iter().map(|extent| extent.device)),
            firsts: filled(extents.iter().map(|extent| extent.first)),
            ends: filled(extents.iter().map(|extent| extent.end)),
            operations: if bits == 0 { u32::MAX } else { bits },
            length_count: count(options.lengths.len()),
            lengths: filled(options.lengths.iter().copied()),
            alignment_count: count(options.alignments.len()),
            alignments: filled(options.alignments.iter().copied()),
            comm_count: count(options.comms.len()),
            comms,
            by_comm: options.by_comm.into(),
            latency: options.latency.into(),
            events: options.events.into(),
            cpus: possible_cpus(),
            takes_bios: extents.iter().any(|extent| extent.takes_bios),
        }
    }

    fn set<'a>(&'a self, loader: &mut EbpfLoader<'a>) {
        loader
            .set_global("disk_count", &self.disk_count, true)
            .set_global("disk_devices", &self.devices, true)
            .set_global("disk_firsts", &self.firsts, true)
            .set_global("disk_ends", &self.ends, true)
            .set_global("wanted_operations", &self.operations, true)
            .set_global("length_count", &self.length_count, true)
            .set_global("lengths", &self.lengths, true)
            .set_global("alignment_count", &self.alignment_count, true)
            .set_global("alignments", &self.alignments, true)
            .set_global("comm_count", &self.comm_count, true)
            .set_global("comms", &self.comms, true)
            .set_global("by_comm", &self.by_comm, true)
            .set_global("with_latency", &self.latency, true)
            .set_global("with_events", &self.events, true);
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn filled<T: Default + Copy, const N: usize>(values: impl Iterator<Item = T>) -> [T; N] {
    let mut array = [T::default(); N];
    for (place, value) in array.iter_mut().zip(values) {
        *place = value;
    }
    array
}

/// CPUs that there may ever be: their numbers go from 0 to this.
fn possible_cpus() -> u32 {
    aya::util::nr_cpus().map_or(1, count).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_letters_of_an_event_are_found_in_its_format() {
        let format = "\tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n\tfield:char rwbs[10];\toffset:34;\tsize:10;\n";
        assert_eq!(parse_rwbs_offset(format), Some(34));
        assert_eq!(parse_rwbs_offset("\tfield:dev_t dev;\toffset:8;\n"), None);
    }
}
