/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Bins of histograms, of times in ns as of sizes in bytes; `bounds` in agent/src/trace/counters.rs has their edges. */
#pragma once

#include "widths.h"

/* Log-linear: 16 bins an octave, so a bin is 6 % wide at most. Below 16 each number has its own. */
static __always_inline u32 bin_of(u64 number)
{
	u32 octave = 0;
	u64 rest = number >> 4;

	if (rest >> 32) { octave += 32; rest >>= 32; }
	if (rest >> 16) { octave += 16; rest >>= 16; }
	if (rest >> 8) { octave += 8; rest >>= 8; }
	if (rest >> 4) { octave += 4; rest >>= 4; }
	if (rest >> 2) { octave += 2; rest >>= 2; }
	if (rest >> 1) { octave += 1; rest >>= 1; }
	octave += rest;
	return octave ? (octave << 4) + ((number >> (octave - 1)) & 15) : number;
}
