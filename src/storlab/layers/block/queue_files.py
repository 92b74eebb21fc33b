"""The files of a block device's queue in sysfs that decide how fast it is: names alone, which reports need, too."""

TUNED = (
    "scheduler",  # what waits for what; changing it changes requests in flight and writeback throttling
    "nr_requests",  # how many requests may wait
    "max_sectors_kb",  # into what size a large request is cut
    "write_cache",  # whether an fsync flushes
    "rotational",  # what file systems and reclaim take it for
    "discard_max_bytes",  # 0: none is passed on
    "wbt_lat_usec",  # from what latency on writeback is held back
    "rq_affinity",  # on which CPU a request is completed
    "nomerges",  # whether neighbours become one request
    "iostats",  # without it nothing is counted, and probes see nothing
    "add_random",  # costs time with each request
    "io_poll",  # completions are polled for
    "read_ahead_kb",  # last: limits on requests reset it
)
"""The files of a queue that anybody may have written to, in the order in which they are set."""

QUEUE = (
    "logical_block_size", "physical_block_size", "minimum_io_size", "optimal_io_size", "max_hw_sectors_kb", "fua",
    "discard_granularity", "atomic_write_unit_min_bytes", "atomic_write_unit_max_bytes", "atomic_write_max_bytes",
    "atomic_write_boundary_bytes", *TUNED,
)  # fmt: skip

IOSCHED = {
    "mq-deadline": (
        "read_expire", "write_expire", "writes_starved", "front_merges", "async_depth", "fifo_batch",
        "prio_aging_expire",
    ),
    "kyber": ("read_lat_nsec", "write_lat_nsec"),
    "bfq": (
        "fifo_expire_sync", "fifo_expire_async", "back_seek_max", "back_seek_penalty", "slice_idle", "slice_idle_us",
        "max_budget", "timeout_sync", "strict_guarantees", "low_latency",
    ),
}  # fmt: skip
"""The parameters of each scheduler, files in ``iosched``: mq-deadline.c, kyber-iosched.c, bfq-iosched.c."""
