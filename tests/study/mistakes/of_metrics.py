"""Metrics that nothing in the study yields, or by which nothing can be compared."""

# ruff: noqa: E501 - a message stands on the line that it is about

from . import read

MISTAKES = read(
    {
        "a primary metric that is misspelt": """
primary = "wirte.iops"  #! primary: unknown metric 'wirte.iops'; did you mean 'write.iops'?
""",
        "a primary metric of another direction": """
primary = "read.iops"  #! primary: unknown metric 'read.iops'; did you mean 'write.iops'?
""",
        "a primary metric of another workload's kind": """
primary = "create.rate"  #! primary: unknown metric 'create.rate': nothing in this study yields it; `storlab list --metrics study.toml` lists what there is
""",
        "a primary metric of a workload that is not there": """
primary = "log:write.iops"  #! primary: unknown metric 'log:write.iops'; did you mean 'load:write.iops'?
""",
        "a percentile that the workload is not asked for": """
primary = "write.latency.p98"  #! primary: unknown metric 'write.latency.p98'; did you mean 'write.latency.p9
""",
        "fairness among the jobs of a command, which has none": """
primary = "rate.jobs.fairness"  #! primary: unknown metric 'rate.jobs.fairness'
[workload.load]
command = { argv = ["true"], metrics = [{ name = "rate", regex = "([0-9]+)", unit = "1/s", better = "higher" }] }
""",
        "a phase that the workload leaves out": """
primary = "stat.rate"  #! primary: unknown metric 'stat.rate'; did you mean 'create.rate'?
[workload.load]
files = { files = 10, phases = ["create"] }
""",
        "a command's metric that its rules do not name": """
primary = "latency"  #! primary: unknown metric 'latency': nothing in this study yields it
[workload.load]
command = { argv = ["true"], metrics = [{ name = "rate", regex = "([0-9]+)", unit = "1/s" }] }
""",
        "a probe's metric without the probe": """
primary = "write.aligned.16k"  #! primary: unknown metric 'write.aligned.16k'
""",
        "a probe's metric of nodes that are not there": """
primary = "probe:stalls@nowhere:stall.longest"  #! 'probe:stalls@nowhere:stall.longest' names no nodes of this study: what follows @ must be host
""",
        "what is to be compared is misspelt": """
[factors]
bs = ["4k", "64k"]
[[compare]]
factor = "bs"
metrics = [
  "iops",
  "bandwith",  #! compare[0].metrics[1]: unknown metric 'bandwith'; did you mean 'bandwidth'?
]
[workload.load]
fio = { rw = "write", bs = "{bs}", size = "1M" }
""",
        "what is to be compared is misspelt in a question of its own": """
primary = "iops"
[factors]
bs = ["4k", "64k"]
[[compare]]
factor = "bs"
metrics = ["write.iops"]
[[compare]]
factor = "bs"
metrics = ["write.amplication"]  #! compare[1].metrics[0]: unknown metric 'write.amplication'; did you mean 'write.amplification'?
[workload.load]
fio = { rw = "write", bs = "{bs}", size = "1M" }
""",
        "a metric that only one of the compared levels has": """
primary = "write.iops"  #! primary: nothing can be compared by 'write.iops'
[factors]
way = ["read", "write"]
[workload.load]
fio = { rw = "{way}", size = "1M" }
""",
    }
)
