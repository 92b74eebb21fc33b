/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The few of the kernel's types of TCP that the programs look into; as in kernel.h, their layout here means nothing.
 * Source: include/net/sock.h, include/linux/tcp.h, net/net_namespace.h of Linux 5.12 to 6.18.
 */
#pragma once

#include <linux/types.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;

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
	unsigned long skc_flags;
	possible_net_t skc_net;
	struct in6_addr_bytes skc_v6_daddr;
	struct in6_addr_bytes skc_v6_rcv_saddr;
} RELOCATED;

struct sock {
	struct sock_common __sk_common;
	u16 sk_protocol;
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
} RELOCATED;
