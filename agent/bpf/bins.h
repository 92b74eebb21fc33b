/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Bins of histograms, of times in ns as of sizes in bytes; `bounds` in agent/src/trace/counters.rs has their edges. */
#pragma once

#include "widths.h"

/* Without a branch, which would often be mispredicted: the sign of a difference says whether the upper half is in use. */
#define HALVE(bits)                                                                                                    \
	{                                                                                                              \
		u64 step = (1ULL << (bits)) - 1 - rest;                                                                \
                                                                                                                       \
		asm volatile("" : "+r"(step)); /* or it becomes a branch again */                                      \
		step = step >> 63 << __builtin_ctz(bits);                                                              \
		rest >>= step;                                                                                         \
		octave += step;                                                                                        \
	}

/* Log-linear: 16 bins an octave, so a bin is 6 % wide at most. Below 16 each number has its own. */
static __always_inline u32 bin_of(u64 number)
{
	u64 rest = number >> 4, octave = 0;

	if (!rest)
		return number;
	HALVE(32)
	HALVE(16)
	HALVE(8)
	HALVE(4)
	HALVE(2)
	HALVE(1)
	return ((octave + 1) << 4) + ((number >> octave) & 15);
}
