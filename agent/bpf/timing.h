/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * How long requests take. When one was issued is kept under its name, which is its tag: it has a number of its own, from
 * the scheduler or from the driver, while it is in flight, so a slot that was claimed once is found at its next use, and nothing is ever deleted.
 * Tags are small numbers that are used again at once; neighbours lie side by side, in few pages.
 */
#pragma once

#include "bins.h"
#include "counters.h"

#define FLIGHT_WAYS 4
#define FLIGHT_SETS 8192

struct flight {
	u64 name; /* 0: free */
	u64 issued; /* ns | issuer << 62; 0: on the ground, and the slot may be taken for another; 1 ns: see AMBIGUOUS */
};

struct flight_set {
	struct flight slots[FLIGHT_WAYS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FLIGHT_SETS);
	__type(key, u32);
	__type(value, struct flight_set);
} FLIGHTS SEC(".maps");

#define ISSUER_SHIFT 62 /* 2^62 ns after the boot are 146 years */
#define WHEN(issued) ((issued) & ((1ULL << ISSUER_SHIFT) - 1))
#define WHOSE(issued) ((u32)((issued) >> ISSUER_SHIFT))

/*
 * Asked for before any counter is looked up: the clock is read only once all that was asked of memory before has come, but
 * what is asked for later, and is nearly always far from the CPU, is waited for by nobody.
 */
static __always_inline u64 time_if_wanted(void)
{
	return with_latency ? bpf_ktime_get_ns() : 0;
}

static __noinline int count_ns(u64 subject, u64 ns)
{
	count_bin_of(subject, bin_of(ns));
	return 0;
}

static __always_inline void count_time(u32 device, u32 operation, enum kind kind, u32 issuer, u64 ns)
{
	count_ns(SUBJECT(device, operation, kind, issuer, 0), ns);
}

static __always_inline void lose_time(void)
{
	if (with_latency)
		lose(LOST_UNTIMED);
}

/* `number` is unique among what is in flight in this queue of the device. */
static __always_inline u64 name_of(u32 device, u32 queue, u32 number)
{
	return (u64)device << 32 | (u64)(queue & 0x7fff) << 17 | 1 << 16 | (number & 0xffff);
}

static __always_inline struct flight_set *flights_of(u64 name)
{
	u32 at = (((name >> 16) * MIX >> 51) + ((name & 0xffff) / FLIGHT_WAYS)) % FLIGHT_SETS;

	return bpf_map_lookup_elem(&FLIGHTS, &at);
}

/* Of two that are in flight at once under one name: neither's end can be told from the other's. */
#define AMBIGUOUS 1ULL

/* Of one set, the slot that each name tries first. Tags that follow each other have one each. */
#define FIRST(name) ((name) % FLIGHT_WAYS)

static __noinline int take_off_elsewhere(u64 name, u64 issued, bool shared)
{
	struct flight_set *set = flights_of(name);

	if (!set)
		return 0;
	for (u32 way = 0; way < FLIGHT_WAYS; way++) {
		struct flight *slot = &set->slots[(FIRST(name) + way) % FLIGHT_WAYS];

		if (slot->name == name) {
			u64 before = shared ? slot->issued : 0;

			if (before && WHOSE(issued) != ISSUER_NOBODY)
				lose_time();
			if (before && before != AMBIGUOUS && WHOSE(before) != ISSUER_NOBODY)
				lose_time();
			slot->issued = before ? AMBIGUOUS : issued;
			return 0;
		}
	}
	for (u32 way = 0; way < FLIGHT_WAYS; way++) {
		struct flight *slot = &set->slots[(FIRST(name) + way) % FLIGHT_WAYS];
		u64 owner = slot->name;

		if (!slot->issued && __sync_val_compare_and_swap(&slot->name, owner, name) == owner) {
			slot->issued = issued;
			return 0;
		}
	}
	if (WHOSE(issued) != ISSUER_NOBODY)
		lose_time();
	return 0;
}

/* `shared`: others in flight may have the same name. */
static __always_inline void take_off(u64 name, u64 now, u32 issuer, bool shared)
{
	struct flight_set *set = flights_of(name);
	u64 issued = now | (u64)issuer << ISSUER_SHIFT;

	if (!shared && set && set->slots[FIRST(name)].name == name)
		set->slots[FIRST(name)].issued = issued;
	else
		take_off_elsewhere(name, issued, shared);
}

static __noinline struct flight *flight_elsewhere(u64 name)
{
	struct flight_set *set = flights_of(name);

	if (!set)
		return 0;
	for (u32 way = 1; way < FLIGHT_WAYS; way++) {
		struct flight *slot = &set->slots[(FIRST(name) + way) % FLIGHT_WAYS];

		if (slot->name == name)
			return slot;
	}
	return 0;
}

/* Nothing where there is none of this name. */
static __always_inline struct flight *flight_named(u64 name)
{
	struct flight_set *set = flights_of(name);

	if (set && set->slots[FIRST(name)].name == name)
		return &set->slots[FIRST(name)];
	return flight_elsewhere(name);
}

/* When it was issued and by whom, and not any more; 0 where that is not known. */
static __always_inline u64 land(u64 name)
{
	struct flight *flight = flight_named(name);
	u64 issued;

	if (!flight)
		return 0;
	issued = flight->issued;
	flight->issued = 0;
	return issued;
}
