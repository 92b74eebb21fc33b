"""Workload ``posix``: what programs may rely on in a directory, looked at call by call."""

from storlab.metrics import MetricSpec

COUNTS = (
    MetricSpec("posix.passed", "1", "higher", "min", noun="checks passed"),
    MetricSpec("posix.failed", "1", "lower", "max", noun="checks failed"),
    MetricSpec("posix.unsupported", "1", "lower", "max", noun="checks unsupported"),
)
"""Several nodes have the fewest passed and the most failed of any."""

SERVER = "fsync-reaches-server"
"""The check that looks at whoever serves the directory: no part of the program, see ``server.py``."""

SERVER_FILE = "server.json"
"""Its line, in the folder of the trial."""
