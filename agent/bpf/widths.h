/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Numbers by their width, as the kernel names them. */
#pragma once

#include <linux/types.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
