//! Which of the kernel's functions lock, so that what calls them is who waits.
//!
//! The kernel keeps most of them in two sections of their own, as `machine__is_lock_function` of `perf` knows
//! (tools/perf/util/machine.c): that of the scheduler, which has all that sleeps, and that of spin locks. The others go by
//! name.

use crate::symbols::Symbols;

/// As many as the programs have room for; see `bpf/locks.bpf.c`.
pub const MAX_RANGES: usize = 1024;

const SECTIONS: [(&str, &str); 2] =
    [("__sched_text_start", "__sched_text_end"), ("__lock_text_start", "__lock_text_end")];
const NAMES: [&str; 36] = [
    // The tracepoints themselves.
    "__traceiter_contention_",
    "__probestub_contention_",
    "__bpf_trace_contention_",
    "trace_contention_",
    // kernel/locking: in neither section in some builds.
    "__mutex_lock",
    "mutex_lock",
    "ww_mutex_lock",
    "down_read",
    "down_write",
    "rwsem_",
    "percpu_down_",
    "__percpu_down_",
    "percpu_rwsem_",
    "queued_spin_lock_",
    "native_queued_spin_lock_",
    "__pv_queued_spin_lock_",
    "resilient_queued_spin_lock_",
    "queued_read_lock_",
    "queued_write_lock_",
    "_raw_spin_",
    "_raw_read_",
    "_raw_write_",
    "rt_spin_",
    "rt_mutex_",
    "rwbase_",
    // What unlocks takes the lock within the lock.
    "up_read",
    "up_write",
    "mutex_unlock",
    "__mutex_unlock",
    // What locks and does one thing more.
    "raw_spin_rq_lock_",
    "__task_rq_lock",
    "task_rq_lock",
    "lockref_",
    "_atomic_dec_and_lock",
    "refcount_dec_and_",
    // ZFS's waiting for a condition takes its mutex again.
    "__cv_",
];
/// Whole names: others begin alike that don't lock.
const WHOLE: [&str; 4] = ["down", "cv_wait_common", "cv_timedwait_common", "cv_timedwait_hires_common"];

/// Addresses of the functions that lock: the first of each range, and the one after its last; in order, apart.
pub fn that_lock(symbols: &Symbols) -> Vec<[u64; 2]> {
    let mut found: Vec<_> = SECTIONS
        .iter()
        .filter_map(|(from, to)| Some([start_of(symbols, from)?, start_of(symbols, to)?]))
        .collect();
    let by_name = |name: &str| WHOLE.contains(&name) || NAMES.iter().any(|one| name.starts_with(one));
    found.extend(symbols.iter().filter(|one| by_name(one.name)).map(|one| [one.start, one.end]));
    joined(found)
}

fn start_of(symbols: &Symbols, name: &str) -> Option<u64> {
    symbols.iter().find(|one| one.name == name).map(|one| one.start)
}

fn joined(mut ranges: Vec<[u64; 2]>) -> Vec<[u64; 2]> {
    ranges.sort_unstable();
    let mut found: Vec<[u64; 2]> = vec![];
    for [start, end] in ranges {
        match found.last_mut() {
            Some([_, last]) if start <= *last => *last = end.max(*last),
            _ => found.push([start, end]),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
ffffffff81000100 T vfs_write
ffffffff81000200 t percpu_rwsem_wait
ffffffff81000300 T download
ffffffff81002000 T __sched_text_start
ffffffff81002010 T mutex_lock
ffffffff81002100 T __sched_text_end
ffffffff81002100 T __lock_text_start
ffffffff81002110 T _raw_spin_lock
ffffffff81002200 T __lock_text_end
ffffffff81002300 T _etext
ffffffffc0001000 t cv_wait_common\t[spl]
ffffffffc0001100 t __cv_wait\t[spl]
ffffffffc0001200 t taskq_thread\t[spl]
";

    #[test]
    fn functions_that_lock_are_those_of_two_sections_and_others_by_name() {
        let symbols = Symbols::parse(TEXT.as_bytes()).unwrap();
        assert_eq!(
            that_lock(&symbols),
            [
                [0xffff_ffff_8100_0200, 0xffff_ffff_8100_0300],
                [0xffff_ffff_8100_2000, 0xffff_ffff_8100_2200],
                [0xffff_ffff_c000_1000, 0xffff_ffff_c000_1200],
            ]
        );
    }

    #[test]
    fn ranges_that_meet_are_one() {
        assert_eq!(joined(vec![[5, 9], [1, 3], [3, 5], [2, 4], [20, 21]]), [[1, 9], [20, 21]]);
    }

    #[test]
    fn this_kernel_has_no_more_than_there_is_room_for() {
        let Ok(symbols) = Symbols::of_kernel() else { return };
        let found = that_lock(&symbols);
        assert!((2..MAX_RANGES).contains(&found.len()), "{}", found.len());
        let place = symbols.iter().find(|one| one.name == "mutex_lock").unwrap().start;
        assert!(found.iter().any(|[start, end]| (start..end).contains(&&place)));
    }
}
