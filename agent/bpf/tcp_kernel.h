/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The few of the kernel's types of TCP that the programs look into; as in kernel.h, their layout here means nothing.
 * Source: include/net/sock.h, include/linux/tcp.h, net/net_namespace.h of Linux 5.12 to 6.18.
 */
#pragma once

#include "widths.h"

#define RELOCATED __attribute__((preserve_access_index))

struct ns_common {
	unsigned int inum;
} RELOCATED;

struct net {
	struct ns_common ns;
} RELOCATED;

typedef struct {
	struct net *net;
} possible_net_t;

struct in6_addr_bytes {
	u8 bytes[16];
};

struct sock_common {
	u32 skc_daddr;
	u32 skc_rcv_saddr;
	u16 skc_dport; /* in the order of the network */
	u16 skc_family;
	u8 skc_state;
	unsigned long skc_flags;
	possible_net_t skc_net;
	struct in6_addr_bytes skc_v6_daddr;
	struct in6_addr_bytes skc_v6_rcv_saddr;
} RELOCATED;

struct sock {
	struct sock_common __sk_common;
	u16 sk_protocol;
	u16 sk_type;
} RELOCATED;

struct inet_sock {
	u16 inet_sport; /* in the order of the network; skc_num is 0 once a socket has closed */
} RELOCATED;

struct tcp_sock {
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
	u32 mss_cache;
	u32 snd_una; /* all before it has been acknowledged by the other end */
	u32 rcv_wup; /* all before it was acknowledged by the last segment that was sent */
} RELOCATED;

struct sk_buff {
	u32 len;
	u8 *data;
	struct sock *sk;
} RELOCATED;
