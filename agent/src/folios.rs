//! `storlab-agent folios`: how large the folios are that files are cached in, told as JSON lines.
//!
//! An eBPF program (`agent/bpf/folios.bpf.c`) counts those that are added to the page cache, by file system and order.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::io::{self, BufWriter, Stdout, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;

use aya::maps::{Array, MapError, PerCpuHashMap};
use aya::programs::TracePoint;
use aya::programs::trace_point::TracePointLink;
use aya::{Ebpf, VerifierLogLevel, include_bytes_aligned};
use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{SysconfVar, geteuid, sysconf};
use serde::Serialize;

use crate::clock::{monotonic_ns, realtime_ns};
use crate::trace::programs::{
    Failure, allow_files, counts_misses_at_tracepoints, kernel_release, loader_without_types, missed,
};
use crate::trace::tracefs::{self, NoTracefs};
use crate::trace::{ending_signals, wait};

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/folios.o"));

const PROGRAM: &str = "added";
const CATEGORY: &str = "filemap";
const EVENT: &str = "mm_filemap_add_to_page_cache";

/// How `folios` is called.
pub const USAGE: &str = "usage: storlab-agent folios [--check]";

#[derive(Debug, thiserror::Error)]
enum FolioError {
    #[error("unknown argument {0:?}\n{USAGE}")]
    Option(OsString),
    #[error("folios can't be counted: {0}")]
    Refused(String),
    #[error("the counts can't be read: {0}")]
    Map(#[from] MapError),
    #[error("{0}")]
    System(#[from] io::Error),
}

impl From<Errno> for FolioError {
    fn from(errno: Errno) -> Self {
        Self::System(errno.into())
    }
}

#[derive(Debug, Serialize)]
#[serde(tag = "event", rename = "started")]
struct Started {
    monotonic_ns: u64,
    realtime_ns: u64,
}

/// All that was counted. `folios`: the disk that their file system is on, or its number where it is on none that has a
/// name; their order; and how many there were.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename = "counts")]
struct Counts {
    monotonic_ns: u64,
    realtime_ns: u64,
    page_size: u64,
    folios: Vec<(String, u32, u64)>,
    /// Found no room for their file system.
    lost: u64,
    /// How often the program could not run, since another was running on that CPU; `None` where that is unknown.
    missed: Option<u64>,
}

/// Does what the arguments after `folios` say, and gives the exit status.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    match watch(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        // Nobody reads any more: there is nothing left to do, and nothing wrong.
        Err(FolioError::System(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("storlab-agent: {error}");
            ExitCode::from(if matches!(error, FolioError::Option(_)) { 2 } else { 1 })
        }
    }
}

fn watch(arguments: impl IntoIterator<Item = OsString>) -> Result<(), FolioError> {
    let mut check = false;
    for argument in arguments {
        match argument.to_str() {
            Some("--check") => check = true,
            _ => return Err(FolioError::Option(argument)),
        }
    }
    prctl::set_pdeathsig(Signal::SIGTERM)?;
    let signals = ending_signals()?;
    let (ebpf, link) = attach()?;
    if check {
        return Ok(());
    }
    let mut out = BufWriter::new(io::stdout());
    put(&mut out, &Started { monotonic_ns: monotonic_ns(), realtime_ns: realtime_ns() })?;
    while !wait(signals.as_fd(), io::stdout().as_fd(), None)? {}
    drop(link);
    put(&mut out, &read(&ebpf)?)
}

fn attach() -> Result<(Ebpf, TracePointLink), FolioError> {
    allow_files().map_err(|refused| FolioError::Refused(refused.0))?;
    tracefs::with(attach_here).map_err(|why| {
        FolioError::Refused(match why {
            Failure::NotAllowed | Failure::NoTracefs(NoTracefs::NotAllowed) if !geteuid().is_root() => {
                "only root may, or whoever has CAP_BPF and CAP_PERFMON".into()
            }
            Failure::NoTracefs(NoTracefs::NoField(..)) => format!(
                "Linux {} does not say how large a folio is that it adds to the page cache",
                kernel_release()
            ),
            why => why.to_string(),
        })
    })
}

/// Needs tracefs.
fn attach_here() -> Result<(Ebpf, TracePointLink), Failure> {
    let order = tracefs::field_offset(CATEGORY, EVENT, "order")?;
    let device = tracefs::field_offset(CATEGORY, EVENT, "s_dev")?;
    let mut loader = loader_without_types();
    loader.verifier_log_level(VerifierLogLevel::DISABLE); // writing it takes most of the time that loading takes
    loader.set_global("offset_of_order", &order, true).set_global("offset_of_device", &device, true);
    let mut ebpf = loader.load(OBJECT)?;
    let missing = || Failure::OfKernel(format!("the object has no program {PROGRAM}"));
    let program: &mut TracePoint = ebpf.program_mut(PROGRAM).ok_or_else(missing)?.try_into()?;
    program.load()?;
    let link = program.attach(CATEGORY, EVENT)?;
    let link = program.take_link(link)?;
    Ok((ebpf, link))
}

fn read(ebpf: &Ebpf) -> Result<Counts, FolioError> {
    let map = |name: &str| ebpf.map(name).ok_or_else(|| MapError::InvalidName { name: name.to_owned() });
    let mut names = HashMap::new();
    let mut folios = vec![];
    for entry in PerCpuHashMap::<_, [u32; 2], u64>::try_from(map("ADDED")?)?.iter() {
        let ([device, order], counts) = entry?;
        let name = names.entry(device).or_insert_with(|| name_of(device)).clone();
        folios.push((name, order, counts.iter().sum()));
    }
    folios.sort();
    let lost = Array::<_, u64>::try_from(map("LOST")?)?.get(&0, 0)?;
    let page_size = sysconf(SysconfVar::PAGE_SIZE)?.and_then(|size| u64::try_from(size).ok()).unwrap_or(4096);
    let missed = if counts_misses_at_tracepoints(&kernel_release()) { missed(ebpf) } else { None };
    Ok(Counts { monotonic_ns: monotonic_ns(), realtime_ns: realtime_ns(), page_size, folios, lost, missed })
}

/// The disk of this number, by its name; else the number.
fn name_of(device: u32) -> String {
    let number = format!("{}:{}", device >> 20, device & 0xf_ffff);
    let link = fs::read_link(format!("/sys/dev/block/{number}")).ok();
    let name = link.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or(number)
}

fn put(out: &mut BufWriter<Stdout>, line: &impl Serialize) -> Result<(), FolioError> {
    serde_json::to_writer(&mut *out, line).map_err(io::Error::from)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}
