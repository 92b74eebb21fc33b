// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Folios that are added to the page cache, counted by the file system's device and by their order: 2^order pages each
 * (mm_filemap_add_to_page_cache in include/trace/events/filemap.h). Where an event has its fields is read from tracefs,
 * and set before loading, so this needs none of the kernel's types.
 */
#include <linux/bpf.h>

#include "widths.h"

#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "GPL"; /* what the kernel's helpers ask for; the other licence is in the first line */

#define KINDS 8192 /* devices × orders */

const volatile u32 offset_of_order = 36;
const volatile u32 offset_of_device = 32;

struct kind {
	u32 device; /* as the kernel has it: major << 20 | minor */
	u32 order;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, KINDS);
	__type(key, struct kind);
	__type(value, u64);
} ADDED SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} LOST SEC(".maps");

SEC("tracepoint/filemap/mm_filemap_add_to_page_cache")
int added(void *event)
{
	struct kind kind = {};
	u64 one = 1, *count;
	u8 order = 0;

	bpf_probe_read_kernel(&kind.device, sizeof(kind.device), event + offset_of_device);
	bpf_probe_read_kernel(&order, sizeof(order), event + offset_of_order);
	kind.order = order;
	count = bpf_map_lookup_elem(&ADDED, &kind);
	if (count) {
		*count += 1; /* of this CPU, on which no other such program runs meanwhile */
	} else if (bpf_map_update_elem(&ADDED, &kind, &one, BPF_ANY)) {
		u32 zero = 0;
		u64 *lost = bpf_map_lookup_elem(&LOST, &zero);

		if (lost)
			__sync_fetch_and_add(lost, 1);
	}
	return 0;
}
