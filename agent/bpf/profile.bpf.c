// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * What each CPU does at the ticks of a clock: the thread, and its stack in the kernel and in its program. Stacks go out
 * as they are, so none is lost because another has its place in a table.
 */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

typedef __u32 u32;
typedef __s32 s32;
typedef __u64 u64;

char LICENSE[] SEC("license") = "GPL"; /* what the kernel's helpers ask for; the other licence is in the first line */

#define DEPTH 127 /* kernel.perf_event_max_stack, unless somebody has changed it */

#define NOT_HERE 0xffffffff /* as a process: it has no number in the agent's PID namespace */

/* The agent's PID namespace, whose numbers /proc has: device and inode, see namespaces(7). 0: the kernel's first one. */
const volatile u64 namespace_device = 0;
const volatile u64 namespace_inode = 0;

struct sample {
	u32 process; /* 0: nothing runs */
	s32 kernel;  /* bytes of addresses; below 0: why there are none */
	s32 user;
	u32 unused;
	char comm[16];
	u64 kernel_stack[DEPTH];
	u64 user_stack[DEPTH];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} SAMPLES SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} LOST SEC(".maps");

/* The number that the agent knows the process by. */
static __always_inline u32 process_of_task(void)
{
	u32 process = bpf_get_current_pid_tgid() >> 32;
	struct bpf_pidns_info own = {};

	if (!process || !namespace_inode)
		return process;
	if (bpf_get_ns_current_pid_tgid(namespace_device, namespace_inode, &own, sizeof(own)))
		return NOT_HERE;
	return own.tgid;
}

SEC("perf_event")
int tick(void *ctx)
{
	struct sample *sample = bpf_ringbuf_reserve(&SAMPLES, sizeof(*sample), 0);

	if (!sample) {
		u32 zero = 0;
		u64 *lost = bpf_map_lookup_elem(&LOST, &zero);

		if (lost)
			__sync_fetch_and_add(lost, 1);
		return 0;
	}
	sample->process = process_of_task();
	sample->unused = 0;
	bpf_get_current_comm(sample->comm, sizeof(sample->comm));
	sample->kernel = bpf_get_stack(ctx, sample->kernel_stack, sizeof(sample->kernel_stack), 0);
	sample->user = bpf_get_stack(ctx, sample->user_stack, sizeof(sample->user_stack), BPF_F_USER_STACK);
	bpf_ringbuf_submit(sample, 0);
	return 0;
}
