/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Requests that came back from their driver after their issue. Each is issued again, maybe by another task, and counts
 * once, as it was first issued: so what is found here at an issue is not counted.
 *
 * While it waits it may grow: others are merged with it, and were not counted yet. Then it is counted as what it has
 * become, and what was counted of it is taken back; likewise where it becomes a part of another.
 */
#pragma once

#include "subject.h"

#define MAX_REQUEUED 8192

struct requeued {
	u64 made; /* when: the kernel uses the memory of a request for others later */
	u64 sector;
	u64 flight; /* of its issue; 0: it was not timed, or not counted */
	u32 device;
	u32 operation;
	u32 flags;
	u32 length;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_REQUEUED);
	__type(key, u64);
	__type(value, struct requeued);
} REQUEUED SEC(".maps");

/* How many there are: nearly always none, and no request pays for looking. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} REQUEUED_COUNT SEC(".maps");

static __always_inline bool was_counted(const struct requeued *requeued)
{
	if (requeued->flight)
		return WHOSE(requeued->flight) != ISSUER_NOBODY;
	return !comm_count && is_wanted_shape(requeued->length, requeued->sector);
}

static __always_inline void take_back_requeued(const struct requeued *requeued)
{
	if (was_counted(requeued))
		take_back(SUBJECT(requeued->device, requeued->operation, KIND_REQUEUED, requeued->flags,
				  WHOSE(requeued->flight)),
			  requeued->length, requeued->sector);
}

/* `name` is unique among requests, as far as can be. */
static __always_inline void remember_requeued(u64 name, const struct requeued *requeued)
{
	u32 zero = 0;
	u64 *count = bpf_map_lookup_elem(&REQUEUED_COUNT, &zero);

	if (!bpf_map_update_elem(&REQUEUED, &name, requeued, BPF_NOEXIST)) {
		if (count)
			__sync_fetch_and_add(count, 1);
	} else if (bpf_map_update_elem(&REQUEUED, &name, requeued, BPF_EXIST))
		take_back_requeued(requeued); /* no room: it will be counted as if it were new */
}

static __always_inline bool is_any_requeued(void)
{
	u32 zero = 0;
	u64 *count = bpf_map_lookup_elem(&REQUEUED_COUNT, &zero);

	return count && *count;
}

/* What is known of it, which is forgotten then; false where it was not requeued. */
static __always_inline bool recall_requeued(u64 name, struct requeued *requeued)
{
	u32 zero = 0;
	u64 *count = bpf_map_lookup_elem(&REQUEUED_COUNT, &zero);
	struct requeued *found;

	if (!count || !*count)
		return false;
	found = bpf_map_lookup_elem(&REQUEUED, &name);
	if (!found)
		return false;
	*requeued = *found;
	if (!bpf_map_delete_elem(&REQUEUED, &name))
		__sync_fetch_and_add(count, -1);
	return true;
}
