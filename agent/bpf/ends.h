/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Where a socket is, and at what its ends are. */
#pragma once

#include <stdbool.h>

#include "tcp_kernel.h"

#include <bpf/bpf_core_read.h>

#define FAMILY_INET6 10
#define PROTOCOL_TCP 6
#define STATE_ESTABLISHED 1
#define ADDRESS 16

const volatile u32 namespace = 0; /* the number of the network namespace that is watched */

static __always_inline bool is_here(const struct sock *sk)
{
	return BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum) == namespace;
}

struct ends {
	u16 family;
	u16 local_port; /* both in the order of the network */
	u16 remote_port;
	u16 unused;
	u8 local[ADDRESS]; /* of IPv4, the first four */
	u8 remote[ADDRESS];
};

static __always_inline void ends_of(const struct sock *sk, struct ends *ends)
{
	ends->family = BPF_CORE_READ(sk, __sk_common.skc_family);
	ends->local_port = BPF_CORE_READ((const struct inet_sock *)sk, inet_sport);
	ends->remote_port = BPF_CORE_READ(sk, __sk_common.skc_dport);
	ends->unused = 0;
	__builtin_memset(ends->local, 0, ADDRESS);
	__builtin_memset(ends->remote, 0, ADDRESS);
	if (ends->family == FAMILY_INET6) {
		BPF_CORE_READ_INTO(&ends->local, sk, __sk_common.skc_v6_rcv_saddr);
		BPF_CORE_READ_INTO(&ends->remote, sk, __sk_common.skc_v6_daddr);
	} else {
		BPF_CORE_READ_INTO((u32 *)ends->local, sk, __sk_common.skc_rcv_saddr);
		BPF_CORE_READ_INTO((u32 *)ends->remote, sk, __sk_common.skc_daddr);
	}
}
