/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * How long requests take. When one was issued is kept under its name, which is its tag: the driver gives it a number of
 * its own while it is in flight, so a slot that was claimed once is found at its next use, and nothing is ever deleted.
 * Tags are small numbers that are used again at once; neighbours lie side by side, in few pages.
 */
#pragma once

#include "bins.h"
#include "counters.h"

#define FLIGHT_WAYS 4
#define FLIGHT_SETS 8192

struct flight {
	u64 name; /* 0: free */
	u64 issued; /* ns | issuer << 62; 0: on the ground, and the slot may be taken for another */
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

/* `shared`: others in flight may have the same name, and what was kept of them is lost. */
static __always_inline void take_off(u64 name, u32 issuer, bool shared)
{
	struct flight_set *set = flights_of(name);
	u64 issued = bpf_ktime_get_ns() | (u64)issuer << ISSUER_SHIFT;

	if (!set)
		return;
#pragma unroll
	for (int way = 0; way < FLIGHT_WAYS; way++)
		if (set->slots[way].name == name) {
			if (shared && set->slots[way].issued)
				lose(LOST_UNTIMED);
			set->slots[way].issued = issued;
			return;
		}
#pragma unroll
	for (int way = 0; way < FLIGHT_WAYS; way++) {
		struct flight *slot = &set->slots[way];
		u64 owner = slot->name;

		if (!slot->issued && __sync_val_compare_and_swap(&slot->name, owner, name) == owner) {
			slot->issued = issued;
			return;
		}
	}
	lose(LOST_UNTIMED);
}

/* When it was issued and by whom, and not any more; 0 where that is not known. */
static __always_inline u64 land(u64 name)
{
	struct flight_set *set = flights_of(name);

	if (!set)
		return 0;
#pragma unroll
	for (int way = 0; way < FLIGHT_WAYS; way++)
		if (set->slots[way].name == name) {
			u64 issued = set->slots[way].issued;

			set->slots[way].issued = 0;
			return issued;
		}
	return 0;
}
