/* planted_cpu TIMES [SECONDS]: works for so many seconds of CPU time, in two functions; the first takes TIMES as long. */
#include <stdlib.h>
#include <time.h>

volatile unsigned long sum;

/* One loop for both, since two copies may differ in speed by how they lie in memory; with APART each has its own. */
#ifdef APART
__attribute__((always_inline)) static inline void work(long n)
#else
__attribute__((noinline)) void work(long n)
#endif
{
	for (long i = 0; i < n; i++)
		sum += i;
}

__attribute__((noinline)) void much(long n)
{
	work(n);
	sum++;
}

__attribute__((noinline)) void little(long n)
{
	work(n);
	sum++;
}

int main(int argc, char **argv)
{
	long times = argc > 1 ? atol(argv[1]) : 1;
	long seconds = argc > 2 ? atol(argv[2]) : 1;
	struct timespec now;

	/* Of lengths drawn by lot: what recurs at a fixed interval may keep step with the sampler's clock. */
	do {
		long n = 50000 + random() % 100000;

		much(times * n);
		little(n);
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	} while (now.tv_sec < seconds);
	return 0;
}
