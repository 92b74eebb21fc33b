// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Waits for the kernel's locks, added up by who waits: the first function outside of those that lock.
 *
 * A lock tells when a wait begins and when it ends (include/trace/events/lock.h, since 5.19). A mutex may tell its
 * beginning several times, spinning (MUTEX | SPIN) and asleep (MUTEX), and its end once: that is one wait.
 *
 * These programs run while locks are held, those of eBPF's own maps among them. The kernel lets no program run within
 * itself on one CPU, and counts how often it didn't; so neither waits for its own maps nor their ends do harm.
 */
#include <stdbool.h>

#include <linux/bpf.h>

#include "kernel.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL"; /* what the kernel's helpers ask for; the other licence is in the first line */

enum lock_flags {
	SPIN = 1 << 0,
	READ = 1 << 1,
	WRITE = 1 << 2,
	RT = 1 << 3,
	PERCPU = 1 << 4,
	MUTEX = 1 << 5,
	KNOWN = (1 << 6) - 1,
};

enum waiter {
	WAITER_OTHER = 0,
	WAITER_OWN = 1,
	WAITER_KERNEL = 2,
};

enum lost {
	LOST_FULL = 0, /* no room for another caller: the wait is not counted */
	LOST_BEGUN = 1, /* no room for another wait in progress, likewise */
	LOST_ENDS = 2, /* an end was not seen, likewise */
	LOST_LOCKS = 3, /* counted, but no room for another lock's address */
	LOST_KINDS = 4,
};

#define MAX_RANGES 1024
#define STEPS 11 /* of a search among so many */
#define FRAMES 16
#define BINS 40 /* up to 2^40 ns, 18 minutes */
#define LEVELS 8 /* of waits on one CPU: a task's, and those of interrupts on top of it */

/* Functions that lock, from first address to after the last, in order; what calls them is who waits. */
const volatile u64 locking[MAX_RANGES][2] = {};
const volatile u32 locking_count = 0;
/* A cgroup (v2) whose tasks are told apart; 0: none. */
const volatile u64 own_cgroup = 0;

struct wait {
	u64 lock;
	u64 begun; /* ns */
	u64 caller;
	u32 kind;
	u32 waiter;
	u64 slept;
};

struct held_up {
	u64 task;
	u64 lock;
};

/* Waits of those that may sleep and so end on another CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct held_up);
	__type(value, struct wait);
} WAITS SEC(".maps");

struct spins {
	u32 depth;
	struct wait at[LEVELS];
};

/* Waits of those that spin, and so end on the CPU where they began, the last one first. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct spins);
} SPINS SEC(".maps");

struct who {
	u64 caller; /* an address within it, after the call; 0: unknown */
	u32 kind;
	u32 waiter;
};

struct sums {
	u64 count;
	u64 slept;
	u64 time; /* ns */
	u64 bins[BINS]; /* from 2^n ns; the last has all that is longer */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, struct who);
	__type(value, struct sums);
} SUMS SEC(".maps");

struct contended {
	u64 caller;
	u64 lock;
	u64 kind;
};

/* Each lock that each caller waited for. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, struct contended);
	__type(value, u32);
} LOCKS SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LOST_KINDS);
	__type(key, u32);
	__type(value, u64);
} LOST SEC(".maps");

static __always_inline void lose(u32 what, u64 many)
{
	u64 *count = bpf_map_lookup_elem(&LOST, &what);

	if (count)
		__sync_fetch_and_add(count, many);
}

/* Not static: the verifier looks at it once, and not at each of its calls. */
__noinline int is_locking(u64 address)
{
	u32 low = 0, high = locking_count;

	for (int i = 0; i < STEPS; i++) {
		u32 middle = (low + high) / 2;

		if (low >= high || middle >= MAX_RANGES)
			return 0;
		if (address < locking[middle][0])
			high = middle;
		else if (address >= locking[middle][1])
			low = middle + 1;
		else
			return 1;
	}
	return 0;
}

/* Frames begin with those of this program, which are no locking functions, and of the tracepoint, which are. */
static __always_inline u64 caller_of(void *ctx)
{
	u64 frames[FRAMES] = {};
	bool locks = false;

	if (bpf_get_stack(ctx, frames, sizeof(frames), 0) <= 0)
		return 0;
	for (int i = 0; i < FRAMES; i++) {
		if (!frames[i])
			return 0;
		if (is_locking(frames[i] - 1))
			locks = true;
		else if (locks)
			return frames[i];
	}
	return 0;
}

static __always_inline u32 waiter_of_task(void)
{
	struct task_struct *task;

	if (!own_cgroup)
		return WAITER_OTHER;
	if (bpf_get_current_cgroup_id() == own_cgroup)
		return WAITER_OWN;
	task = (struct task_struct *)bpf_get_current_task();
	return BPF_CORE_READ(task, flags) & PF_KTHREAD ? WAITER_KERNEL : WAITER_OTHER;
}

static __always_inline u32 log2_of(u64 number)
{
	u32 bits = 0;

	if (number >> 32) { bits += 32; number >>= 32; }
	if (number >> 16) { bits += 16; number >>= 16; }
	if (number >> 8) { bits += 8; number >>= 8; }
	if (number >> 4) { bits += 4; number >>= 4; }
	if (number >> 2) { bits += 2; number >>= 2; }
	return bits + (number >> 1);
}

static __always_inline void count(const struct wait *wait)
{
	struct who who = { wait->caller, wait->kind, wait->waiter };
	struct contended contended = { wait->caller, wait->lock, wait->kind };
	u64 now = bpf_ktime_get_ns(), time = now > wait->begun ? now - wait->begun : 0;
	u32 bin = log2_of(time), one = 1;
	struct sums *sums = bpf_map_lookup_elem(&SUMS, &who);

	if (!sums) {
		static const struct sums none;

		bpf_map_update_elem(&SUMS, &who, &none, BPF_NOEXIST /* another CPU may be first */);
		sums = bpf_map_lookup_elem(&SUMS, &who);
		if (!sums) {
			lose(LOST_FULL, 1);
			return;
		}
	}
	if (bin >= BINS)
		bin = BINS - 1;
	__sync_fetch_and_add(&sums->count, 1);
	__sync_fetch_and_add(&sums->slept, wait->slept);
	__sync_fetch_and_add(&sums->time, time);
	__sync_fetch_and_add(&sums->bins[bin], 1);
	if (!bpf_map_lookup_elem(&LOCKS, &contended) && bpf_map_update_elem(&LOCKS, &contended, &one, BPF_ANY))
		lose(LOST_LOCKS, 1);
}

static __always_inline void begin_spin(const struct wait *wait)
{
	u32 zero = 0, depth;
	struct spins *spins = bpf_map_lookup_elem(&SPINS, &zero);

	if (!spins)
		return;
	depth = spins->depth;
	if (depth >= LEVELS) {
		/* Deeper than interrupts go: those are waits whose ends were not seen. */
		lose(LOST_ENDS, LEVELS);
		depth = 0;
	}
	spins->at[depth] = *wait;
	spins->depth = depth + 1;
}

/* Whether this was the end of one. Those that began after it have ended, though nobody saw it. */
static __always_inline bool end_spin(u64 lock)
{
	u32 zero = 0, depth;
	struct spins *spins = bpf_map_lookup_elem(&SPINS, &zero);

	if (!spins || !spins->depth)
		return false;
	depth = spins->depth;
	for (u32 i = LEVELS; i-- > 0;) {
		if (i >= depth || spins->at[i].lock != lock)
			continue;
		spins->depth = i;
		if (depth - 1 > i)
			lose(LOST_ENDS, depth - 1 - i);
		count(&spins->at[i]);
		return true;
	}
	return false;
}

SEC("tp_btf/contention_begin")
int BPF_PROG(contention_begin, void *lock, u32 flags)
{
	struct held_up key = { bpf_get_current_task(), (u64)lock };
	bool spins = flags & SPIN && !(flags & (MUTEX | RT));
	struct wait *before = spins ? 0 : bpf_map_lookup_elem(&WAITS, &key);
	struct wait wait = {};

	if (before) {
		if (flags & MUTEX) {
			if (!(flags & SPIN))
				before->slept = 1;
			return 0;
		}
		lose(LOST_ENDS, 1);
	}
	wait.lock = (u64)lock;
	wait.caller = caller_of(ctx);
	wait.kind = flags & MUTEX ? MUTEX : flags & KNOWN;
	wait.waiter = waiter_of_task();
	wait.slept = !(flags & SPIN);
	wait.begun = bpf_ktime_get_ns(); /* after the walk over the stack, which takes as long as a short wait */
	if (spins)
		begin_spin(&wait);
	else if (bpf_map_update_elem(&WAITS, &key, &wait, BPF_ANY))
		lose(LOST_BEGUN, 1);
	return 0;
}

SEC("tp_btf/contention_end")
int BPF_PROG(contention_end, void *lock)
{
	struct held_up key = { bpf_get_current_task(), (u64)lock };
	struct wait *wait;

	if (end_spin((u64)lock))
		return 0;
	wait = bpf_map_lookup_elem(&WAITS, &key);
	if (!wait)
		return 0; /* it began before this program was there */
	count(wait);
	bpf_map_delete_elem(&WAITS, &key);
	return 0;
}
