// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Block I/O, seen where the kernel hands a request to its driver and where the driver gives it back: tp_btf, whose
 * programs read the kernel's structures directly.
 */
#include <stdbool.h>

#include <linux/bpf.h>

#include "kernel.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "requeued.h"

char LICENSE[] SEC("license") = "GPL"; /* what the kernel's helpers ask for; the other licence is in the first line */

static __always_inline u32 device_of(struct gendisk *disk)
{
	return (u32)disk->major << 20 | disk->first_minor;
}

static __always_inline struct gendisk *disk_of(struct request *rq)
{
	if (bpf_core_field_exists(rq->q->disk))
		return rq->q->disk;
	return ((struct request___before_5_15 *)rq)->rq_disk;
}

#define IS_VALUE(number, type, name)                                                                                    \
	(bpf_core_enum_value_exists(type, name) && (number) == bpf_core_enum_value(type, name))
#define IS_OP(op, name) (IS_VALUE(op, enum req_op, name) || IS_VALUE(op, enum req_opf, name##___before_6_0))

static __always_inline u32 operation_of(u32 cmd_flags)
{
	u32 op = cmd_flags & 0xff;

	if (op <= OP_DISCARD || op == OP_SECURE_ERASE || op == OP_WRITE_ZEROES)
		return op;
	if (IS_OP(op, REQ_OP_ZONE_APPEND))
		return OP_ZONE_APPEND;
	if (IS_OP(op, REQ_OP_ZONE_OPEN))
		return OP_ZONE_OPEN;
	if (IS_OP(op, REQ_OP_ZONE_CLOSE))
		return OP_ZONE_CLOSE;
	if (IS_OP(op, REQ_OP_ZONE_FINISH))
		return OP_ZONE_FINISH;
	if (IS_OP(op, REQ_OP_ZONE_RESET))
		return OP_ZONE_RESET;
	if (IS_OP(op, REQ_OP_ZONE_RESET_ALL))
		return OP_ZONE_RESET_ALL;
	if (op == 34)
		return OP_DRV_IN;
	if (op == 35)
		return OP_DRV_OUT;
	return OP_OTHER;
}

#define FLAG(cmd_flags, bit, flag)                                                                                     \
	(bpf_core_enum_value_exists(enum req_flag_bits, bit) &&                                                        \
			 (cmd_flags) >> bpf_core_enum_value(enum req_flag_bits, bit) & 1 ?                             \
		 (flag) :                                                                                              \
		 0)

static __always_inline u32 flags_of(u32 cmd_flags)
{
	return FLAG(cmd_flags, __REQ_PREFLUSH, FLAG_PREFLUSH) | FLAG(cmd_flags, __REQ_FUA, FLAG_FUA) |
	       FLAG(cmd_flags, __REQ_SYNC, FLAG_SYNC) | FLAG(cmd_flags, __REQ_META, FLAG_META) |
	       FLAG(cmd_flags, __REQ_PRIO, FLAG_PRIO) | FLAG(cmd_flags, __REQ_RAHEAD, FLAG_READAHEAD) |
	       FLAG(cmd_flags, __REQ_BACKGROUND, FLAG_BACKGROUND) | FLAG(cmd_flags, __REQ_ATOMIC, FLAG_ATOMIC) |
	       FLAG(cmd_flags, __REQ_SWAP, FLAG_SWAP);
}

#define MEANINGS_SHIFT 26
#define IS_KNOWN (1U << 31)
#define OPERATION_OF(meaning) ((meaning) & 0x1f)
#define FLAGS_OF(meaning) ((meaning) >> 5 & 0x1ff)

/*
 * What the kernel's words for operation and flags say: the word << 32 | IS_KNOWN | flags << 5 | operation. Few are in use at
 * a time, and to look one up takes a fraction of the code that finds out.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << (32 - MEANINGS_SHIFT));
	__type(key, u32);
	__type(value, u64);
} MEANINGS SEC(".maps");

#define MEANING_AT(cmd_flags) ((cmd_flags) * (u32)(MIX >> 32) >> MEANINGS_SHIFT)

static __noinline u32 find_meaning(u32 cmd_flags)
{
	u32 meaning = IS_KNOWN | flags_of(cmd_flags) << 5 | operation_of(cmd_flags), at = MEANING_AT(cmd_flags);
	u64 *known = bpf_map_lookup_elem(&MEANINGS, &at);

	if (known)
		*(volatile u64 *)known = (u64)cmd_flags << 32 | meaning; /* at once: other CPUs read it meanwhile */
	return meaning;
}

static __always_inline u32 meaning_of(u32 cmd_flags)
{
	u32 at = MEANING_AT(cmd_flags);
	u64 *known = bpf_map_lookup_elem(&MEANINGS, &at), found = known ? *(volatile u64 *)known : 0;

	return found >> 32 == cmd_flags && found & IS_KNOWN ? (u32)found : find_meaning(cmd_flags);
}

/* A flush has no place and no length, whatever its request says; nor has a command that only the driver understands. */
static __always_inline u64 sector_of(struct request *rq, u32 operation)
{
	return operation == OP_FLUSH || operation == OP_DRV_IN || operation == OP_DRV_OUT ? NOWHERE : rq->__sector;
}

/* A request's disk, or nothing where it is none of those that are looked at. */
static __always_inline bool is_wanted(struct request *rq, u32 *device, u32 *operation, u32 *flags)
{
	struct gendisk *disk = disk_of(rq);
	u32 meaning;

	if (!disk)
		return false; /* a command to a controller, not to a disk */
	*device = device_of(disk);
	meaning = meaning_of(rq->cmd_flags);
	*operation = OPERATION_OF(meaning);
	*flags = FLAGS_OF(meaning);
	return (wanted_operations >> *operation & 1) && is_wanted_disk(*device, sector_of(rq, *operation));
}

/*
 * The address of a kernel's object as a number. The verifier doesn't let a program reckon with a pointer; what an atomic
 * exchange leaves in memory is a number to it.
 */
static __always_inline u64 address_of(const void *object)
{
	u64 address = 0;

	__sync_lock_test_and_set(&address, (u64)object);
	return address;
}

/* Where there is a scheduler, its tag: the driver's is another one once the request was requeued. */
static __always_inline u64 flight_of(struct request *rq, u32 device)
{
	int tag = rq->internal_tag;

	return name_of(device, rq->mq_hctx->queue_num, tag < 0 ? rq->tag : tag);
}

/* When the request was made; 0 where the kernel has not kept that. Since 6.13 it keeps it only of those with this flag, and
 * leaves in the others what was there of another request; the flag has a type since 6.11. */
static __always_inline u64 made(struct request *rq)
{
	if (bpf_core_enum_value_exists(enum rqf_flags, __RQF_IO_STAT) && (rq->cmd_flags & 0xff) != OP_FLUSH &&
	    !(rq->rq_flags >> bpf_core_enum_value(enum rqf_flags, __RQF_IO_STAT) & 1))
		return 0;
	return rq->start_time_ns;
}

/* Without the exchange, which takes long, where there is nothing to be found. */
static __always_inline bool recall(struct request *rq, struct requeued *before)
{
	return is_any_requeued() && recall_requeued(address_of(rq), before);
}

/* Whether it was issued before, and counted or left out then; what was, has its time from this issue on. */
static __always_inline bool is_issued_again(struct request *rq, u32 device, u32 operation, u64 now)
{
	struct requeued before;

	if (!recall(rq, &before) || before.made != made(rq) || before.device != device)
		return false;
	if (before.length != rq->__data_len || before.sector != sector_of(rq, operation)) {
		take_back_requeued(&before);
		return false;
	}
	if (with_latency && before.flight)
		take_off(flight_of(rq, device), now, WHOSE(before.flight), false);
	else if (with_latency)
		land(flight_of(rq, device));
	return true;
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(block_rq_issue, struct request *rq)
{
	u32 device, operation, flags, issuer;
	u64 now;

	if (!is_wanted(rq, &device, &operation, &flags))
		return 0;
	now = time_if_wanted();
	if (is_issued_again(rq, device, operation, now))
		return 0;
	if (!issue(device, operation, flags, rq->__data_len, sector_of(rq, operation), &issuer)) {
		if (with_latency)
			land(flight_of(rq, device)); /* of one before it, whose end was not seen */
	} else if (with_latency)
		take_off(flight_of(rq, device), now, issuer, false);
	return 0;
}

/* Attached only where times are wanted. */
SEC("tp_btf/block_rq_complete")
int BPF_PROG(block_rq_complete, struct request *rq, int error, unsigned int bytes)
{
	u32 device, operation, flags;
	u64 flight, issued, begun, now;
	struct requeued before;
	u32 issuer;

	if (bytes < rq->__data_len && !error)
		return 0; /* a part of it */
	if (!is_wanted(rq, &device, &operation, &flags))
		return 0;
	now = time_if_wanted();
	begun = made(rq); /* asked for early: the memory that has it is another CPU's */
	recall(rq, &before); /* it ends without another issue */
	flight = land(flight_of(rq, device));
	if (!flight)
		return 0; /* it was issued before anybody looked, or a filter left it out */
	issued = WHEN(flight);
	issuer = WHOSE(flight);
	count_time(device, operation, KIND_SERVICE, issuer, now - issued);
	if (begun && begun <= issued)
		count_time(device, operation, KIND_QUEUED, issuer, issued - begun);
	return 0;
}

SEC("tp_btf/block_rq_error")
int BPF_PROG(block_rq_error, struct request *rq)
{
	u32 device, operation, flags;

	if (is_wanted(rq, &device, &operation, &flags))
		count_other(device, operation, OTHER_ERROR);
	return 0;
}

SEC("tp_btf/block_rq_requeue")
int BPF_PROG(block_rq_requeue, struct request *rq)
{
	struct requeued now = {};
	u32 device, operation, flags;

	if (!is_wanted(rq, &device, &operation, &flags))
		return 0;
	count_other(device, operation, OTHER_REQUEUE);
	if (rq->state == MQ_RQ_IDLE)
		return 0; /* it has not been issued since it was last seen here */
	now.made = made(rq);
	now.sector = sector_of(rq, operation);
	now.flight = with_latency ? land(flight_of(rq, device)) : 0;
	now.device = device;
	now.operation = operation;
	now.flags = flags;
	now.length = rq->__data_len;
	remember_requeued(address_of(rq), &now);
	return 0;
}

SEC("tp_btf/block_rq_merge")
int BPF_PROG(block_rq_merge, struct request *rq)
{
	struct requeued before;
	u32 device, operation, flags;

	if (!is_wanted(rq, &device, &operation, &flags))
		return 0;
	count_other(device, operation, OTHER_REQUEST_MERGE);
	if (recall(rq, &before) && before.made == made(rq))
		take_back_requeued(&before); /* it is counted with what it has become a part of */
	return 0;
}

/*
 * Bios are read through a helper: to follow pointers from one directly takes the verifier 13 ms a program.
 */
static __always_inline u32 device_of_bio(struct bio *bio)
{
	struct gendisk *disk = BPF_CORE_READ(bio, bi_bdev, bd_disk);

	return (u32)BPF_CORE_READ(disk, major) << 20 | BPF_CORE_READ(disk, first_minor);
}

static __always_inline int count_bio(struct bio *bio, u32 what)
{
	u32 operation = OPERATION_OF(meaning_of(BPF_CORE_READ(bio, bi_opf)));
	u32 device = device_of_bio(bio);

	if (wanted_operations >> operation & 1 && is_wanted_disk(device, BPF_CORE_READ(bio, bi_iter.bi_sector)))
		count_other(device, operation, what);
	return 0;
}

SEC("tp_btf/block_bio_backmerge")
int BPF_PROG(block_bio_backmerge, struct bio *bio)
{
	return count_bio(bio, OTHER_BACK_MERGE);
}

SEC("tp_btf/block_bio_frontmerge")
int BPF_PROG(block_bio_frontmerge, struct bio *bio)
{
	return count_bio(bio, OTHER_FRONT_MERGE);
}

SEC("tp_btf/block_split")
int BPF_PROG(block_split, struct bio *bio)
{
	return count_bio(bio, OTHER_SPLIT);
}

/*
 * Disks without requests of their own (device mapper, zvols, MD) take bios, and these two are attached where such a disk
 * is named: a bio counts as a request, and its time is from its coming to its end.
 */
static __always_inline bool is_taken_as_it_is(struct bio *bio)
{
	return !BPF_CORE_READ(bio, bi_bdev, bd_disk, queue, mq_ops);
}

SEC("tp_btf/block_bio_queue")
int BPF_PROG(block_bio_queue, struct bio *bio)
{
	u32 meaning = meaning_of(BPF_CORE_READ(bio, bi_opf)), length = BPF_CORE_READ(bio, bi_iter.bi_size);
	u32 flags = FLAGS_OF(meaning), operation = OPERATION_OF(meaning), device = device_of_bio(bio);
	u64 sector = BPF_CORE_READ(bio, bi_iter.bi_sector);
	u32 issuer;
	u64 now;

	if (!is_taken_as_it_is(bio) || !is_wanted_disk(device, length ? sector : NOWHERE))
		return 0;
	if (!length && flags & FLAG_PREFLUSH)
		operation = OP_FLUSH;
	if (!(wanted_operations >> operation & 1))
		return 0;
	now = time_if_wanted();
	if (!issue(device, operation, flags, length, operation == OP_FLUSH ? NOWHERE : sector, &issuer)) {
		if (with_latency)
			land(address_of(bio));
	} else if (with_latency)
		take_off(address_of(bio), now, issuer, false);
	return 0;
}

SEC("tp_btf/block_bio_complete")
int BPF_PROG(block_bio_complete, struct request_queue *queue, struct bio *bio)
{
	u64 issued = land(address_of(bio));

	if (issued) /* what it was is gone by now but for the operation */
		count_time(device_of_bio(bio), OPERATION_OF(meaning_of(BPF_CORE_READ(bio, bi_opf))), KIND_SERVICE,
			   WHOSE(issued), bpf_ktime_get_ns() - WHEN(issued));
	return 0;
}
