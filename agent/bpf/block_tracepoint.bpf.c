// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Block I/O through the classic tracepoints, for kernels without BTF. The fields that matter lie at the same place in
 * all of them, but for the letters of operation and flags: where these are is read from tracefs and set before loading.
 * A request goes by its disk and sector here, and how long it was queued can't be known.
 */
#include <stdbool.h>

#include <linux/bpf.h>

#include "kernel.h"

#include <bpf/bpf_helpers.h>

/* Before 6.1 the kernel warns of programs at tracepoints whose maps allocate memory as they run. */
#define PREALLOCATED
#include "requeued.h"

char LICENSE[] SEC("license") = "GPL";

/* Offset of `rwbs` in each event. */
const volatile u32 rwbs_of_issue = 32;
const volatile u32 rwbs_of_complete = 32;
const volatile u32 rwbs_of_requeue = 32;
const volatile u32 rwbs_of_bio = 28;
const volatile u32 rwbs_of_split = 32;

#define RWBS_SIZE 8

struct event_head {
	u64 common;
	u32 device;
	u64 sector;
	u32 sectors;
	u32 bytes; /* of block_rq_issue and block_rq_merge */
};

static __always_inline bool is_operation(char letter)
{
	return letter == 'R' || letter == 'W' || letter == 'D' || letter == 'F' || letter == 'N' || letter == 'Z';
}

/* See blk_fill_rwbs() in kernel/trace/blktrace.c: [F]OPERATION[F][A][S][M][U]. */
static __always_inline void understand(const void *at, u32 *operation, u32 *flags)
{
	char rwbs[RWBS_SIZE + 1] = {};
	u32 i = 0;

	bpf_probe_read_kernel_str(rwbs, sizeof(rwbs), at); /* what lies behind its end is of older events */
	*flags = 0;
	*operation = OP_OTHER;
	if (rwbs[0] == 'F' && is_operation(rwbs[1])) {
		*flags |= FLAG_PREFLUSH;
		i = 1;
	}
	char letter = i ? rwbs[1] : rwbs[0], next = i ? rwbs[2] : rwbs[1];

	if (letter == 'R')
		*operation = OP_READ;
	else if (letter == 'W' && next == 'Z')
		*operation = OP_WRITE_ZEROES;
	else if (letter == 'W')
		*operation = OP_WRITE;
	else if (letter == 'D')
		*operation = next == 'E' ? OP_SECURE_ERASE : OP_DISCARD;
	else if (letter == 'F')
		*operation = OP_FLUSH;
#pragma unroll
	for (u32 k = 1; k < RWBS_SIZE; k++) {
		if (k <= i)
			continue;
		if (rwbs[k] == 'F')
			*flags |= FLAG_FUA;
		else if (rwbs[k] == 'A' && letter != 'Z')
			*flags |= FLAG_READAHEAD;
		else if (rwbs[k] == 'S')
			*flags |= FLAG_SYNC;
		else if (rwbs[k] == 'M')
			*flags |= FLAG_META;
		else if (rwbs[k] == 'U')
			*flags |= FLAG_ATOMIC;
	}
}

/* A command that only the driver understands has no sectors; one of zones has no bytes. */
static __always_inline u64 sector_of(struct event_head *event, u32 operation)
{
	bool is_of_driver = operation == OP_OTHER && !event->sector && !event->sectors;

	return operation == OP_FLUSH || is_of_driver ? NOWHERE : event->sector;
}

static __always_inline bool is_wanted(struct event_head *event, u32 rwbs, u32 *device, u32 *operation, u32 *flags)
{
	*device = event->device;
	understand((void *)event + rwbs, operation, flags);
	return (wanted_operations >> *operation & 1) && is_wanted_disk(*device, sector_of(event, *operation));
}

/* What goes by its place here. What has none is at sector 0, but for its completion. */
static __always_inline u64 name_at(struct event_head *event, u32 operation)
{
	u64 sector = operation == OP_FLUSH || event->sector == NOWHERE ? 0 : event->sector;

	return (((u64)event->device << 5 | operation) * MIX ^ sector) | 1ULL << 63;
}

/* What is in flight is kept even where no times are wanted, and what was left out: else it could not be told whether a
 * request that is requeued had been issued, and by whom. */
SEC("tracepoint/block/block_rq_issue")
int block_rq_issue(struct event_head *event)
{
	u32 device, operation, flags, issuer;
	struct requeued before;
	u64 now;

	if (!is_wanted(event, rwbs_of_issue, &device, &operation, &flags))
		return 0;
	now = bpf_ktime_get_ns();
	if (recall_requeued(name_at(event, operation), &before)) {
		if (before.length == event->sectors << 9) {
			issuer = WHOSE(before.flight); /* it was issued before, and counted or left out then */
			take_off(name_at(event, operation), now, issuer, true);
			return 0;
		}
		take_back_requeued(&before);
	}
	if (!issue(device, operation, flags, event->bytes, sector_of(event, operation), &issuer))
		issuer = ISSUER_NOBODY;
	take_off(name_at(event, operation), now, issuer, true);
	return 0;
}

SEC("tracepoint/block/block_rq_complete")
int block_rq_complete(struct event_head *event)
{
	u32 device, operation, flags;
	struct requeued before;
	u64 issued, now;

	if (!is_wanted(event, rwbs_of_complete, &device, &operation, &flags))
		return 0;
	now = time_if_wanted();
	recall_requeued(name_at(event, operation), &before); /* it ends without another issue */
	issued = land(name_at(event, operation));
	if (with_latency && issued && issued != AMBIGUOUS && WHOSE(issued) != ISSUER_NOBODY)
		count_time(device, operation, KIND_SERVICE, WHOSE(issued), now - WHEN(issued));
	return 0;
}

static __always_inline int count_event(struct event_head *event, u32 rwbs, u32 what)
{
	u32 device, operation, flags;

	if (is_wanted(event, rwbs, &device, &operation, &flags))
		count_other(device, operation, what);
	return 0;
}

SEC("tracepoint/block/block_rq_error")
int block_rq_error(struct event_head *event)
{
	return count_event(event, rwbs_of_complete, OTHER_ERROR);
}

SEC("tracepoint/block/block_rq_requeue")
int block_rq_requeue(struct event_head *event)
{
	struct requeued now = {};
	struct flight *flight;
	u32 device, operation, flags;

	if (!is_wanted(event, rwbs_of_requeue, &device, &operation, &flags))
		return 0;
	count_other(device, operation, OTHER_REQUEUE);
	flight = flight_named(name_at(event, operation));
	if (!flight || !flight->issued)
		return 0; /* it has not been issued since it was last seen here */
	now.flight = flight->issued;
	if (now.flight != AMBIGUOUS)
		flight->issued = 0;
	now.sector = sector_of(event, operation);
	now.device = device;
	now.operation = operation;
	now.flags = flags;
	now.length = event->sectors << 9;
	remember_requeued(name_at(event, operation), &now);
	return 0;
}

SEC("tracepoint/block/block_rq_merge")
int block_rq_merge(struct event_head *event)
{
	struct requeued before;
	u32 device, operation, flags;

	if (!is_wanted(event, rwbs_of_issue, &device, &operation, &flags))
		return 0;
	count_other(device, operation, OTHER_REQUEST_MERGE);
	if (recall_requeued(name_at(event, operation), &before))
		take_back_requeued(&before); /* it is counted with what it has become a part of */
	return 0;
}

SEC("tracepoint/block/block_bio_backmerge")
int block_bio_backmerge(struct event_head *event)
{
	return count_event(event, rwbs_of_bio, OTHER_BACK_MERGE);
}

SEC("tracepoint/block/block_bio_frontmerge")
int block_bio_frontmerge(struct event_head *event)
{
	return count_event(event, rwbs_of_bio, OTHER_FRONT_MERGE);
}

SEC("tracepoint/block/block_split")
int block_split(struct event_head *event)
{
	return count_event(event, rwbs_of_split, OTHER_SPLIT);
}
