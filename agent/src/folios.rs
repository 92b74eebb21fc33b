//! `storlab-agent folios`: how large the folios are that files are cached in, told as JSON lines.
//!
//! An eBPF program (`agent/bpf/folios.bpf.c`) counts those that are added to the page cache, by file system and order.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use aya::maps::{Array, MapError, PerCpuHashMap};
use aya::programs::TracePoint;
use aya::programs::trace_point::TracePointLink;
use aya::{Ebpf, VerifierLogLevel, include_bytes_aligned};
use nix::unistd::{SysconfVar, sysconf};
use serde::Serialize;

use crate::clock::{monotonic_ns, realtime_ns};
use crate::trace::programs::{
    Failure, allow_files, counts_misses_at_tracepoints, kernel_release, loader_without_types, missed,
};
use crate::trace::tracefs::{self, NoTracefs};
use crate::watching::{Watch, WatchError, exit_code, read_options};

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/folios.o"));

const PROGRAM: &str = "added";
const CATEGORY: &str = "filemap";
const EVENT: &str = "mm_filemap_add_to_page_cache";

/// How `folios` is called.
pub const USAGE: &str = "usage: storlab-agent folios [--check]";

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
    lost: u64,
    /// How often the program could not run, since another was running on that CPU; `None` where that is unknown.
    missed: Option<u64>,
}

/// Does what the arguments after `folios` say, and gives the exit status.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    exit_code(watch(arguments), USAGE)
}

fn watch(arguments: impl IntoIterator<Item = OsString>) -> Result<(), WatchError> {
    let mut check = false;
    read_options(arguments, |name, _| {
        check |= name == "check";
        Ok(name == "check")
    })?;
    let mut watch = Watch::prepare()?;
    let (ebpf, link) = allow_files().and_then(|()| tracefs::with(attach)).map_err(|why| {
        let why = match why {
            Failure::NoTracefs(NoTracefs::NoField(..)) => Failure::OfKernel(format!(
                "Linux {} does not say how large a folio is that it adds to the page cache",
                kernel_release()
            )),
            why => why,
        };
        why.of_watching("folios can't be counted")
    })?;
    if check {
        return Ok(());
    }
    watch.tell(&Started { monotonic_ns: monotonic_ns(), realtime_ns: realtime_ns() })?;
    while !watch.is_over()? {}
    drop(link);
    Ok(watch.tell(&read(&ebpf)?)?)
}

fn attach() -> Result<(Ebpf, TracePointLink), Failure> {
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

fn read(ebpf: &Ebpf) -> Result<Counts, WatchError> {
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
