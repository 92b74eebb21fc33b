//! The eBPF program that looks at a CPU at each tick of its clock.

use aya::maps::{Array, MapData, RingBuf};
use aya::programs::PerfEvent;
use aya::programs::perf_event::perf_sw_ids::PERF_COUNT_SW_CPU_CLOCK;
use aya::programs::perf_event::{PerfEventScope, PerfTypeId, SamplePolicy};
use aya::{Ebpf, VerifierLogLevel, include_bytes_aligned};
use nix::sys::stat::{major, minor, stat};

use crate::clock::SECOND;
use crate::tcp::taken;
use crate::trace::programs::{Failure, allow_files, allow_more_files, loader_without_types};

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/profile.o"));

const PROGRAM: &str = "tick";
/// Of the buffer, for each CPU, and at most: a tenth of a second takes some 20 KiB.
const ROOM: u32 = 256 << 10;
const MOST_ROOM: u32 = 16 << 20;
const LOST: u32 = 0;

const NAMESPACE: &str = "/proc/self/ns/pid";
/// Of the kernel's first PID namespace: `PROC_PID_INIT_INO` in include/linux/proc_ns.h.
const FIRST: u64 = 0xEFFF_FFFC;

pub struct Attached {
    ebpf: Option<Ebpf>, // it is attached for as long as this lives
    samples: RingBuf<MapData>,
    lost: Array<MapData, u64>,
}

impl Attached {
    /// Loads it, and attaches it to the clock of each of these CPUs; or says in a sentence why that can't be.
    pub fn new(cpus: &[i32], frequency: u64) -> Result<Self, String> {
        allow_files().map_err(|why| why.to_string())?;
        allow_more_files();
        attach(cpus, frequency).map_err(|why| why.to_string())
    }

    /// No tick is looked at any more.
    pub fn stop(&mut self) {
        self.ebpf = None;
    }

    /// All samples since the last call.
    pub fn each(&mut self, mut take: impl FnMut(&[u8])) {
        while let Some(sample) = self.samples.next() {
            take(&sample);
        }
    }

    /// How many found no room in the buffer.
    pub fn lost(&self) -> u64 {
        self.lost.get(&LOST, 0).unwrap_or_default()
    }
}

fn attach(cpus: &[i32], frequency: u64) -> Result<Attached, Failure> {
    let mut loader = loader_without_types();
    loader.verifier_log_level(VerifierLogLevel::DISABLE); // writing it takes most of the time that loading takes
    let count = u32::try_from(cpus.len()).unwrap_or(1).max(1);
    let room = ROOM.saturating_mul(count).checked_next_power_of_two().unwrap_or(MOST_ROOM).min(MOST_ROOM);
    loader.set_max_entries("SAMPLES", room);
    let (device, inode) = own_namespace();
    loader.set_global("namespace_device", &device, true).set_global("namespace_inode", &inode, true);
    let mut ebpf = loader.load(OBJECT)?;
    let missing = || Failure::OfKernel(format!("the object has no program {PROGRAM}"));
    let program: &mut PerfEvent = ebpf.program_mut(PROGRAM).ok_or_else(missing)?.try_into()?;
    program.load()?;
    for cpu in cpus.iter().filter_map(|cpu| u32::try_from(*cpu).ok()) {
        program.attach(
            PerfTypeId::Software,
            PERF_COUNT_SW_CPU_CLOCK as u64,
            PerfEventScope::AllProcessesOneCpu { cpu },
            SamplePolicy::Period(SECOND / frequency.max(1)), /* in ns */
            false,
        )?;
    }
    let samples = RingBuf::try_from(taken(&mut ebpf, "SAMPLES")?).map_err(|error| Failure::of(&error))?;
    let lost = Array::try_from(taken(&mut ebpf, "LOST")?).map_err(|error| Failure::of(&error))?;
    Ok(Attached { ebpf: Some(ebpf), samples, lost })
}

/// Device and inode of this process's PID namespace; zeros where it is the first one, whose numbers the kernel uses itself.
fn own_namespace() -> (u64, u64) {
    match stat(NAMESPACE) {
        // The kernel compares with the number of the device as it has it inside (MKDEV), not as stat(2) shows it.
        Ok(found) if found.st_ino != FIRST => (major(found.st_dev) << 20 | minor(found.st_dev), found.st_ino),
        _ => (0, 0),
    }
}
