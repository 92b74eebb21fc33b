// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * TCP connections that come and go: what a look at all of them every so often would miss. One that ends leaves its last
 * counts, which are those that it would have shown a moment before; that one was established is only counted.
 */
#include <stdbool.h>

#include <linux/bpf.h>

#include "tcp_kernel.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "ends.h"

char LICENSE[] SEC("license") = "GPL"; /* what the kernel's helpers ask for; the other licence is in the first line */

#define FLAG_DONE (1UL << 1) /* SOCK_DONE of enum sock_flags: the other end's FIN has come */

struct closed {
	u64 time; /* ns, CLOCK_MONOTONIC */
	u64 cookie;
	u64 bytes_sent;
	u64 bytes_retrans;
	u64 bytes_acked;
	u64 bytes_received;
	u32 segs_out;
	u32 segs_in;
	u32 data_segs_out;
	u32 data_segs_in;
	u32 total_retrans;
	u32 dsack_dups;
	u32 reord_seen;
	u32 rcv_ooopack;
	u32 delivered;
	u32 mss;
	struct ends ends;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20); /* some 6000 of them */
} CLOSED SEC(".maps");

enum { COUNT_OPENED, COUNT_LOST, COUNTS };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, COUNTS);
	__type(key, u32);
	__type(value, u64);
} COUNTED SEC(".maps");

static __always_inline void count(u32 what)
{
	u64 *found = bpf_map_lookup_elem(&COUNTED, &what);

	if (found)
		__sync_fetch_and_add(found, 1);
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(inet_sock_set_state, const struct sock *sk, const int before, const int after)
{
	if (after == STATE_ESTABLISHED && BPF_CORE_READ(sk, sk_protocol) == PROTOCOL_TCP && is_here(sk))
		count(COUNT_OPENED);
	return 0;
}

SEC("tp_btf/tcp_destroy_sock")
int BPF_PROG(tcp_destroy_sock, struct sock *sk)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;
	struct closed *closed;

	if (!BPF_CORE_READ(sk, __sk_common.skc_dport) || !is_here(sk))
		return 0; /* it was never connected, or to somebody else's */
	closed = bpf_ringbuf_reserve(&CLOSED, sizeof(*closed), 0);
	if (!closed) {
		count(COUNT_LOST);
		return 0;
	}
	closed->time = bpf_ktime_get_ns();
	closed->cookie = bpf_get_socket_cookie(sk);
	closed->bytes_sent = BPF_CORE_READ(tp, bytes_sent);
	closed->bytes_retrans = BPF_CORE_READ(tp, bytes_retrans);
	closed->bytes_acked = BPF_CORE_READ(tp, bytes_acked);
	closed->bytes_received = BPF_CORE_READ(tp, bytes_received);
	if (BPF_CORE_READ(sk, __sk_common.skc_flags) & FLAG_DONE && closed->bytes_received)
		closed->bytes_received--; /* to the kernel a FIN is a byte, which is none of data */
	closed->segs_out = BPF_CORE_READ(tp, segs_out);
	closed->segs_in = BPF_CORE_READ(tp, segs_in);
	closed->data_segs_out = BPF_CORE_READ(tp, data_segs_out);
	closed->data_segs_in = BPF_CORE_READ(tp, data_segs_in);
	closed->total_retrans = BPF_CORE_READ(tp, total_retrans);
	closed->dsack_dups = BPF_CORE_READ(tp, dsack_dups);
	closed->reord_seen = BPF_CORE_READ(tp, reord_seen);
	closed->rcv_ooopack = BPF_CORE_READ(tp, rcv_ooopack);
	closed->delivered = BPF_CORE_READ(tp, delivered);
	closed->mss = BPF_CORE_READ(tp, mss_cache);
	ends_of(sk, &closed->ends);
	bpf_ringbuf_submit(closed, 0);
	return 0;
}
