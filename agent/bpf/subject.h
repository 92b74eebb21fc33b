/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Who asked for a request, and the single events: what both kinds of hook do alike once they know the request. */
#pragma once

#include <bpf/bpf_core_read.h>

#include "timing.h"

/* The numbers of operations here; those up to 9 are the kernel's own, which have never changed. */
enum operation {
	OP_READ = 0,
	OP_WRITE = 1,
	OP_FLUSH = 2,
	OP_DISCARD = 3,
	OP_SECURE_ERASE = 5,
	OP_OTHER = 8,
	OP_WRITE_ZEROES = 9,
	OP_ZONE_APPEND = 16,
	OP_ZONE_OPEN = 17,
	OP_ZONE_CLOSE = 18,
	OP_ZONE_FINISH = 19,
	OP_ZONE_RESET = 20,
	OP_ZONE_RESET_ALL = 21,
	OP_DRV_IN = 22,
	OP_DRV_OUT = 23,
};

enum flag {
	FLAG_PREFLUSH = 1 << 0,
	FLAG_FUA = 1 << 1,
	FLAG_SYNC = 1 << 2,
	FLAG_META = 1 << 3,
	FLAG_PRIO = 1 << 4,
	FLAG_READAHEAD = 1 << 5,
	FLAG_BACKGROUND = 1 << 6,
	FLAG_ATOMIC = 1 << 7,
	FLAG_SWAP = 1 << 8,
};

#define MAX_COMMS 4096 /* 14 bits of a key hold the number of one */

struct comm {
	char text[COMM_SIZE];
};

/* Names of commands, numbered as they come. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_COMMS);
	__type(key, struct comm);
	__type(value, u32);
} COMMS SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} NEXT_COMM SEC(".maps");

struct event {
	u64 time; /* ns, CLOCK_MONOTONIC */
	u64 sector;
	u32 device;
	u32 length;
	u32 pid;
	u16 operation;
	u16 flags;
	char comm[COMM_SIZE];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096); /* set when it is loaded */
} EVENTS SEC(".maps");

/* 0 where there is no room for another. */
static __always_inline u32 number_of(const struct comm *comm)
{
	u32 *found = bpf_map_lookup_elem(&COMMS, comm);
	u32 zero = 0, number;
	u32 *next;

	if (found)
		return *found;
	next = bpf_map_lookup_elem(&NEXT_COMM, &zero);
	if (!next)
		return 0;
	number = __sync_fetch_and_add(next, 1) + 1;
	if (number > MAX_COMMS || bpf_map_update_elem(&COMMS, comm, &number, BPF_NOEXIST)) {
		found = bpf_map_lookup_elem(&COMMS, comm); /* another CPU was first */
		if (!found)
			lose(LOST_COMMS);
		return found ? *found : 0;
	}
	return number;
}

static __always_inline void send(const struct comm *comm, u32 device, u32 operation, u32 flags, u32 length, u64 sector)
{
	struct event *event = bpf_ringbuf_reserve(&EVENTS, sizeof(*event), 0);

	if (!event) {
		lose(LOST_EVENTS);
		return;
	}
	event->time = bpf_ktime_get_ns();
	event->sector = sector == NOWHERE ? 0 : sector;
	event->device = device;
	event->length = length;
	event->pid = bpf_get_current_pid_tgid() >> 32;
	event->operation = operation;
	event->flags = flags;
	__builtin_memcpy(event->comm, comm->text, COMM_SIZE);
	bpf_ringbuf_submit(event, 0);
}

/* Who issues: tasks in the group, threads of the kernel, or anybody else. What the page cache writes back is issued
 * by a thread of the kernel, whose data it may be. */
static __always_inline enum issuer issuer_of_task(void)
{
	struct task_struct *task;

	if (bpf_get_current_cgroup_id() == own_cgroup)
		return ISSUER_OWN;
	if (!knows_tasks)
		return ISSUER_OTHER;
	task = (struct task_struct *)bpf_get_current_task();
	return BPF_CORE_READ(task, flags) & PF_KTHREAD ? ISSUER_KERNEL : ISSUER_OTHER;
}

/* Counts one request that is wanted, and says whose it is; false where a filter leaves it out. */
static __always_inline bool issue(u32 device, u32 operation, u32 flags, u32 length, u64 sector, u32 *issuer)
{
	struct comm comm = {};
	u32 number = 0;

	*issuer = ISSUER_OTHER;
	if (!is_wanted_shape(length, sector))
		return false;
	if (by_comm || comm_count || with_events) {
		bpf_get_current_comm(&comm, sizeof(comm));
		if (comm_count && !is_wanted_comm(comm.text))
			return false;
		if (by_comm)
			number = number_of(&comm);
	}
	count_request(SUBJECT(device, operation, KIND_REQUEST, flags, number), length, sector);
	if (own_cgroup) {
		*issuer = issuer_of_task();
		if (*issuer != ISSUER_OTHER)
			count_request(SUBJECT(device, operation, *issuer == ISSUER_OWN ? KIND_OWN : KIND_KERNEL, flags,
					      number),
				      length, sector);
	}
	if (with_events)
		send(&comm, device, operation, flags, length, sector);
	return true;
}
