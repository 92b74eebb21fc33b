/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The few of the kernel's types that the programs look into. Their layout here means nothing: each access is relocated
 * to the running kernel's when the program is loaded (CO-RE), so no kernel headers are needed, and one object fits all.
 * Source: include/linux/blk-mq.h, blk_types.h, blkdev.h of Linux 5.12 to 6.18.
 */
#pragma once

#include "widths.h"

#define RELOCATED __attribute__((preserve_access_index))

struct request_queue;

struct task_struct {
	u32 flags;
} RELOCATED;

#define PF_KTHREAD 0x00200000 /* include/linux/sched.h; the same since 2.6.27 */

struct gendisk {
	int major;
	int first_minor;
	struct request_queue *queue;
} RELOCATED;

struct request_queue {
	struct gendisk *disk; /* since 5.15; before, of the request */
	const void *mq_ops; /* none: it takes bios as they are, and makes no requests of them */
} RELOCATED;

struct blk_mq_hw_ctx {
	u32 queue_num;
} RELOCATED;

enum mq_rq_state {
	MQ_RQ_IDLE,
};

struct request {
	struct request_queue *q;
	struct blk_mq_hw_ctx *mq_hctx;
	u32 cmd_flags;
	u32 rq_flags;
	int tag;
	int internal_tag;
	u32 __data_len;
	u64 __sector;
	u64 start_time_ns;
	enum mq_rq_state state;
} RELOCATED;

struct request___before_5_15 {
	struct gendisk *rq_disk;
} RELOCATED;

struct block_device {
	struct gendisk *bd_disk;
} RELOCATED;

struct bvec_iter {
	u64 bi_sector;
	u32 bi_size;
} RELOCATED;

struct bio {
	struct block_device *bi_bdev;
	u32 bi_opf;
	struct bvec_iter bi_iter;
} RELOCATED;

/* Numbers that differ between kernels; only the names count here. */
enum req_op {
	REQ_OP_ZONE_APPEND,
	REQ_OP_ZONE_OPEN,
	REQ_OP_ZONE_CLOSE,
	REQ_OP_ZONE_FINISH,
	REQ_OP_ZONE_RESET,
	REQ_OP_ZONE_RESET_ALL,
};

/* Their name before 6.0. */
enum req_opf {
	REQ_OP_ZONE_APPEND___before_6_0,
	REQ_OP_ZONE_OPEN___before_6_0,
	REQ_OP_ZONE_CLOSE___before_6_0,
	REQ_OP_ZONE_FINISH___before_6_0,
	REQ_OP_ZONE_RESET___before_6_0,
	REQ_OP_ZONE_RESET_ALL___before_6_0,
};

/* Since 6.11. */
enum rqf_flags {
	__RQF_IO_STAT,
};

enum req_flag_bits {
	__REQ_SYNC,
	__REQ_META,
	__REQ_PRIO,
	__REQ_FUA,
	__REQ_PREFLUSH,
	__REQ_RAHEAD,
	__REQ_BACKGROUND,
	__REQ_SWAP,
	__REQ_ATOMIC,
};
