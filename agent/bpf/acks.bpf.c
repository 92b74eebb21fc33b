// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Pure ACKs: how many bytes each of them acknowledges, and how long after the one before it comes. They run for every
 * segment that a card is given and for every one that a connection takes in, so those with data leave as soon as can be.
 *
 * What is sent is known from the socket: of two segments in a row its counters say whether the later one had data, and
 * up to where each acknowledged. What comes in is known from its header.
 */
#include <stdbool.h>

#include <linux/bpf.h>

#include "tcp_kernel.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>

#include "bins.h"
#include "ends.h"

char LICENSE[] SEC("license") = "GPL"; /* what the kernel's helpers ask for; the other licence is in the first line */

#define TYPE_STREAM 1
#define LONGEST_HEADER 60
#define FIN_SYN_RST 7
#define MAX_ENDPOINTS 16
#define BINS 592 /* up to 2^40: bytes of any segment, and 18 minutes in ns */

/* Connections that have one of these at either end; none: all. In the order of the network; 0: any. */
const volatile u32 endpoint_count = 0;
const volatile u16 endpoint_ports[MAX_ENDPOINTS] = {};
const volatile u64 endpoint_addresses[MAX_ENDPOINTS][2] = {}; /* those of IPv4 as IPv6 writes them */

enum { SENT, RECEIVED, WAYS };

struct histograms {
	u64 bytes[WAYS][BINS];
	u64 gaps[WAYS][BINS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct histograms);
} HISTOGRAMS SEC(".maps");

/* A connection, as it was at the last segment. The kernel drops it with its socket. */
struct talk {
	u64 last[WAYS]; /* when there was an ACK, in ns; 0: never */
	u32 segs_out;
	u32 data_segs_out;
	u32 acknowledged; /* all before it */
	u16 wanted;
	u16 established;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct talk);
} TALKS SEC(".maps");

struct address {
	u64 halves[2];
};

/* As IPv6 writes those of IPv4. */
static __always_inline struct address written(u16 family, const u8 *bytes)
{
	struct address address = {};

	if (family == FAMILY_INET6)
		__builtin_memcpy(&address, bytes, ADDRESS);
	else {
		u32 words[4] = { 0, 0, bpf_htonl(0xffff), 0 };

		__builtin_memcpy(&words[3], bytes, 4);
		__builtin_memcpy(&address, words, ADDRESS);
	}
	return address;
}

static __always_inline bool is_at(u32 endpoint, u16 port, struct address at)
{
	const volatile u64 *wanted = endpoint_addresses[endpoint];

	return (!endpoint_ports[endpoint] || endpoint_ports[endpoint] == port) &&
	       ((!wanted[0] && !wanted[1]) || (wanted[0] == at.halves[0] && wanted[1] == at.halves[1]));
}

static __always_inline bool is_wanted(const struct sock *sk)
{
	struct ends ends;
	struct address local, remote;

	if (!is_here(sk))
		return false;
	if (!endpoint_count)
		return true;
	ends_of(sk, &ends);
	local = written(ends.family, ends.local);
	remote = written(ends.family, ends.remote);
	for (u32 i = 0; i < MAX_ENDPOINTS && i < endpoint_count; i++)
		if (is_at(i, ends.local_port, local) || is_at(i, ends.remote_port, remote))
			return true;
	return false;
}

/* None where it isn't wanted, or nobody's; a new one begins with what was sent up to now. */
static __always_inline struct talk *talk_of(struct sock *sk)
{
	struct talk *talk = bpf_sk_storage_get(&TALKS, sk, 0, 0);
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;
	struct talk begun = {};

	if (!talk) {
		/* Of a socket that is none yet, as a SYN+ACK's, these are anything; the kernel gives it no storage. */
		if (sk->sk_protocol != PROTOCOL_TCP || sk->sk_type != TYPE_STREAM)
			return 0;
		begun.segs_out = BPF_CORE_READ(tp, segs_out);
		begun.data_segs_out = BPF_CORE_READ(tp, data_segs_out);
		begun.acknowledged = BPF_CORE_READ(tp, rcv_wup);
		begun.wanted = is_wanted(sk);
		begun.established = sk->__sk_common.skc_state == STATE_ESTABLISHED;
		talk = bpf_sk_storage_get(&TALKS, sk, &begun, BPF_SK_STORAGE_GET_F_CREATE);
	}
	return talk && talk->wanted ? talk : 0;
}

static __always_inline void count_in(u64 *bins, u64 number)
{
	u32 bin = bin_of(number);

	if (bin < BINS)
		bins[bin]++;
}

/* Each program counts in bins of its own, and the kernel lets none interrupt itself: no atomic instruction is needed. */
static __always_inline void count_ack(struct talk *talk, const u32 way, u32 bytes)
{
	u64 now = bpf_ktime_get_ns(), before = talk->last[way];
	u32 zero = 0;
	struct histograms *histograms = bpf_map_lookup_elem(&HISTOGRAMS, &zero);

	if (!histograms)
		return;
	count_in(histograms->bytes[way], bytes);
	if (before)
		count_in(histograms->gaps[way], now > before ? now - before : 0);
	talk->last[way] = now;
}

SEC("tp_btf/net_dev_queue")
int BPF_PROG(net_dev_queue, struct sk_buff *skb)
{
	struct sock *sk = skb->sk;
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;
	struct talk *talk;
	u32 sent, data, acknowledged, bytes;
	bool established, counts;

	if (!sk)
		return 0; /* it is passed on for others */
	talk = talk_of(sk);
	if (!talk)
		return 0;
	sent = BPF_CORE_READ(tp, segs_out);
	if (sent == talk->segs_out)
		return 0; /* the same segment, at a card beneath another, such as a VLAN's */
	data = BPF_CORE_READ(tp, data_segs_out);
	acknowledged = BPF_CORE_READ(tp, rcv_wup);
	established = sk->__sk_common.skc_state == STATE_ESTABLISHED;
	counts = established && talk->established && data == talk->data_segs_out;
	bytes = acknowledged - talk->acknowledged;
	talk->segs_out = sent;
	talk->data_segs_out = data;
	talk->acknowledged = acknowledged;
	talk->established = established;
	if (counts)
		count_ack(talk, SENT, bytes);
	return 0;
}

SEC("tp_btf/tcp_probe")
int BPF_PROG(tcp_probe, struct sock *sk, struct sk_buff *skb)
{
	struct talk *talk;
	u8 header[20];
	u32 length = skb->len, acknowledged;
	int bytes;

	if (length > LONGEST_HEADER)
		return 0;
	talk = talk_of(sk);
	if (!talk || bpf_probe_read_kernel(header, sizeof(header), skb->data))
		return 0;
	if (length > (header[12] >> 4) * 4 || header[13] & FIN_SYN_RST)
		return 0;
	__builtin_memcpy(&acknowledged, header + 8, sizeof(acknowledged));
	bytes = bpf_ntohl(acknowledged) - BPF_CORE_READ((const struct tcp_sock *)sk, snd_una);
	count_ack(talk, RECEIVED, bytes > 0 ? bytes : 0);
	return 0;
}
