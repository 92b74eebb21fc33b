/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * What is looked at. These constants are set before the programs are loaded, so that the verifier drops the code of
 * filters that are not in use: a filter costs only those who ask for it.
 */
#pragma once

#include "kernel.h"

#define MAX_DISKS 16
#define MAX_VALUES 8
#define COMM_SIZE 16

/* First those that every request looks at: their line of cache is all that filters cost where there are none. */
const volatile u32 disk_count = 0;
const volatile u32 wanted_operations = ~0; /* a bit for each OP_* */
const volatile u32 length_count = 0;
const volatile u32 alignment_count = 0;
const volatile u32 comm_count = 0;
const volatile u64 own_cgroup = 0; /* its id in cgroup v2; 0: requests are not told apart by who issued them */
const volatile u8 knows_tasks = 1; /* 0: where a task's flags lie is not known, and no thread is taken for the kernel's */
const volatile u8 by_comm = 0;
const volatile u8 with_latency = 1;
const volatile u8 with_events = 0;
const volatile u32 cpu_count = 1;

/* A disk, or a part of it: sectors from first to end, which is not in it any more. */
const volatile u32 disk_devices[MAX_DISKS] = {};
const volatile u64 disk_firsts[MAX_DISKS] = {};
const volatile u64 disk_ends[MAX_DISKS] = {};

const volatile u32 lengths[MAX_VALUES] = {};
const volatile u32 alignments[MAX_VALUES] = {};
const volatile char comms[MAX_VALUES][COMM_SIZE] = {};

/* A flush, or a command that only the driver understands, is of the whole disk, and so of each of its parts. The kernel
 * gives the latter this very sector. */
#define NOWHERE (~0ULL)

static __always_inline bool is_wanted_disk(u32 device, u64 sector)
{
	if (!disk_count)
		return true;
	for (u32 i = 0; i < MAX_DISKS && i < disk_count; i++)
		if (disk_devices[i] == device &&
		    (sector == NOWHERE || (sector >= disk_firsts[i] && sector < disk_ends[i])))
			return true;
	return false;
}

static __always_inline bool is_one_of(u32 value, const volatile u32 *values, u32 count)
{
	for (u32 i = 0; i < MAX_VALUES && i < count; i++)
		if (values[i] == value)
			return true;
	return false;
}

/* The alignment of both: the lowest bit of either, at least one sector. */
static __always_inline bool is_wanted_shape(u32 length, u64 sector)
{
	if (length_count && !is_one_of(length, lengths, length_count))
		return false;
	if (alignment_count) {
		u64 both = length | sector << 9;
		u64 lowest = both & -both;

		if (!length || sector == NOWHERE ||
		    !is_one_of(lowest < 512 ? 512 : lowest, alignments, alignment_count))
			return false;
	}
	return true;
}

static __always_inline bool is_wanted_comm(const char *comm)
{
	for (u32 i = 0; i < MAX_VALUES && i < comm_count; i++) {
		u32 at = 0;

		while (at < COMM_SIZE && comm[at] == comms[i][at] && comm[at])
			at++;
		if (at == COMM_SIZE || comm[at] == comms[i][at])
			return true;
	}
	return false;
}
