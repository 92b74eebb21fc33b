/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Exact counters by key, cheap enough for every request.
 *
 * A plain BPF hash map costs more than all else that happens here. So each CPU has a set-associative cache of counters,
 * in one array map whose lookup the verifier turns into a few instructions; a key that finds its set taken is counted
 * in a hash map behind it. Nothing moves from one to the other: a key's count is the sum of all its places, which user
 * space adds up. A slot is claimed once, by its key, and never given up.
 *
 * What is nearly always so is done in place: a key's first slot in its set, which is drawn by its hash, is its own. The
 * rest is in functions that are called, so that the code of each request is short.
 *
 * An interrupt may run another program on the same CPU between any two instructions. It never counts the same key,
 * since each program has kinds of its own, and the kernel doesn't let a program interrupt itself; so counting needs no
 * atomic instruction, and only claiming a slot does.
 */
#pragma once

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "filter.h"

/* What a counter counts; in its key, so that the kinds never meet. */
enum kind {
	KIND_REQUEST = 1,
	KIND_REQUEUED = 2, /* counted as a request, and again: to be taken back; in place of a command it has its issuer */
	KIND_SERVICE = 3,
	KIND_QUEUED = 4,
	KIND_OTHER = 5,
	KIND_OWN = 6, /* a request once more, by a task in the group that was named */
	KIND_KERNEL = 7, /* likewise, by a thread of the kernel's own */
};

/* Whose a request is: where a group was named, a task's in it, a thread's of the kernel, or anybody else's. */
enum issuer {
	ISSUER_OTHER = 0,
	ISSUER_OWN = 1,
	ISSUER_KERNEL = 2,
	ISSUER_NOBODY = 3, /* it was not counted */
};

enum other {
	OTHER_BACK_MERGE = 0,
	OTHER_FRONT_MERGE = 1,
	OTHER_REQUEST_MERGE = 2,
	OTHER_SPLIT = 3,
	OTHER_REQUEUE = 4,
	OTHER_ERROR = 5,
};

enum lost {
	LOST_FULL = 0,
	LOST_UNTIMED = 1,
	LOST_EVENTS = 2,
	LOST_COMMS = 3,
	LOST_KINDS = 4,
};

#define REQUEST_WAYS 4
#define REQUEST_SETS 512 /* for each CPU */
#define BIN_WAYS 4
#define BIN_SETS 64 /* for each CPU */
#ifdef PREALLOCATED
#define SPILLED_ENTRIES 16384
#define SPILLED_FLAGS 0
#else
#define SPILLED_ENTRIES 262144
#define SPILLED_FLAGS BPF_F_NO_PREALLOC /* it is nearly always empty */
#endif
#define UNITS 5 /* 4k, 8k, 16k, 32k, 64k */

/* device | operation << 32 | kind << 37 | flags << 40 | comm << 49; of a bin, its issuer and number in place of the last two */
#define SUBJECT(device, operation, kind, flags, comm)                                                                  \
	((u64)(device) | (u64)(operation) << 32 | (u64)(kind) << 37 | (u64)(flags) << 40 | (u64)(comm) << 49)
#define IN_USE (1ULL << 63)

/* A cache line: of a set of four, one or two are touched. */
struct request_slot {
	u64 shape; /* length | lowest bit of the sector << 32 | IN_USE; 0: free */
	u64 subject;
	u64 count;
	u64 units[UNITS];
};

struct request_set {
	struct request_slot slots[REQUEST_WAYS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, REQUEST_SETS); /* times the number of CPUs, set when it is loaded */
	__type(key, u32);
	__type(value, struct request_set);
} REQUESTS SEC(".maps");

#define BIN_STEPS 16

/* An octave of a histogram, or counters without a shape: neighbours lie side by side, in few cache lines. */
struct bin_slot {
	u64 subject; /* with the number of the first bin | IN_USE; 0: free */
	u64 counts[BIN_STEPS];
};

struct bin_set {
	struct bin_slot slots[BIN_WAYS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BIN_SETS);
	__type(key, u32);
	__type(value, struct bin_set);
} BINS SEC(".maps");

struct spilled_key {
	u64 subject;
	u64 shape;
};

struct spilled {
	u64 count;
	u64 units[UNITS];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, SPILLED_FLAGS);
	__uint(max_entries, SPILLED_ENTRIES);
	__type(key, struct spilled_key);
	__type(value, struct spilled);
} SPILLED SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LOST_KINDS);
	__type(key, u32);
	__type(value, u64);
} LOST SEC(".maps");

static __always_inline void lose(u32 what)
{
	u64 *count = bpf_map_lookup_elem(&LOST, &what);

	if (count)
		__sync_fetch_and_add(count, 1);
}

static __always_inline void spill(u64 subject, u64 shape, const u64 *units)
{
	struct spilled_key key = { subject, shape };
	struct spilled *found = bpf_map_lookup_elem(&SPILLED, &key);

	if (!found) {
		struct spilled none = {};

		bpf_map_update_elem(&SPILLED, &key, &none, BPF_NOEXIST /* another CPU may be first */);
		found = bpf_map_lookup_elem(&SPILLED, &key);
		if (!found) {
			lose(LOST_FULL);
			return;
		}
	}
	__sync_fetch_and_add(&found->count, 1);
	if (units)
		for (int i = 0; i < UNITS; i++)
			__sync_fetch_and_add(&found->units[i], units[i]);
}

/* Fibonacci hashing: the upper bits of a product depend on all bits of its factors. */
#define MIX 0x9e3779b97f4a7c15ULL

/* Of 2^23 sectors, all is aligned to all lengths; and so is what has no place. */
static __always_inline u64 shape_of(u32 length, u64 sector)
{
	u64 place = sector == NOWHERE ? 0 : sector;

	return IN_USE | ((place | 1ULL << 23) & -(place | 1ULL << 23)) << 32 | length;
}

static __always_inline void add_units(u64 *units, u32 length, u64 sector)
{
	u64 end = (sector << 9) + length - 1;

	if (length && sector != NOWHERE)
#pragma unroll
		for (int i = 0; i < UNITS; i++)
			units[i] += (end >> (12 + i)) - (sector >> (3 + i)) + 1;
}

static __always_inline bool is_counted_in(struct request_slot *slot, u64 subject, u32 length, u64 sector)
{
	if (slot->shape != shape_of(length, sector) || slot->subject != subject)
		return false;
	slot->count++;
	add_units(slot->units, length, sector);
	return true;
}

/* One that was counted will be counted once more. Several programs do this, so it is done atomically. */
static __always_inline void take_back(u64 subject, u32 length, u64 sector)
{
	u64 units[UNITS] = {};

	add_units(units, length, sector);
	spill(subject, shape_of(length, sector), units);
}

static __noinline int count_request_elsewhere(u32 at, u32 first, u64 subject, u32 length, u64 sector)
{
	u64 shape = shape_of(length, sector);
	struct request_set *set = bpf_map_lookup_elem(&REQUESTS, &at);

	if (!set) {
		lose(LOST_FULL);
		return 0;
	}
	for (u32 way = 0; way < REQUEST_WAYS; way++) {
		struct request_slot *slot = &set->slots[(first + way) % REQUEST_WAYS];

		if (!slot->shape && __sync_val_compare_and_swap(&slot->shape, 0, shape) == 0)
			slot->subject = subject;
		if (is_counted_in(slot, subject, length, sector))
			return 0;
	}
	take_back(subject, length, sector);
	return 0;
}

static __always_inline void count_request(u64 subject, u32 length, u64 sector)
{
	u32 hash = ((subject ^ shape_of(length, sector) * MIX) * MIX) >> 53, first = hash % REQUEST_WAYS;
	u32 at = hash / REQUEST_WAYS + bpf_get_smp_processor_id() * REQUEST_SETS;
	struct request_set *set = bpf_map_lookup_elem(&REQUESTS, &at);

	if (!set || !is_counted_in(&set->slots[first], subject, length, sector))
		count_request_elsewhere(at, first, subject, length, sector);
}

static __noinline int count_bin_elsewhere(u32 at, u32 first, u64 subject, u32 step)
{
	struct bin_set *set = bpf_map_lookup_elem(&BINS, &at);

	if (!set) {
		lose(LOST_FULL);
		return 0;
	}
	for (u32 way = 0; way < BIN_WAYS; way++) {
		struct bin_slot *slot = &set->slots[(first + way) % BIN_WAYS];

		if (!slot->subject)
			__sync_val_compare_and_swap(&slot->subject, 0, subject);
		if (slot->subject == subject) {
			slot->counts[step % BIN_STEPS]++;
			return 0;
		}
	}
	spill((subject & ~IN_USE) + SUBJECT(0, 0, 0, 0, step), IN_USE, 0);
	return 0;
}

/* `bin` has at most 14 bits; `subject` is without it. */
static __always_inline void count_bin_of(u64 subject, u32 bin)
{
	u32 step = bin % BIN_STEPS;
	u32 hash, first, at;
	struct bin_set *set;

	subject |= SUBJECT(0, 0, 0, 0, bin - step) | IN_USE;
	hash = (subject * MIX) >> 56;
	first = hash % BIN_WAYS;
	at = hash / BIN_WAYS + bpf_get_smp_processor_id() * BIN_SETS;
	set = bpf_map_lookup_elem(&BINS, &at);

	if (set && set->slots[first].subject == subject)
		set->slots[first].counts[step]++;
	else
		count_bin_elsewhere(at, first, subject, step);
}

static __always_inline void count_other(u32 device, u32 operation, enum other what)
{
	count_bin_of(SUBJECT(device, operation, KIND_OTHER, ISSUER_OTHER, 0), what);
}
