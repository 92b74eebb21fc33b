"""Loads, their metrics, power cuts, and the machines and networks that they run on, that cannot be."""

from laboratory.samples import sample

from . import read

WORKLOADS = read(sample(__file__, "workloads.txt"))

COMMANDS = read(sample(__file__, "commands.txt"))

CRASH = read(sample(__file__, "crash.txt"))

GUESTS = read(sample(__file__, "guests.txt"))

NETWORKS = read(sample(__file__, "networks.txt"))

METRICS = read(sample(__file__, "metrics.txt"))
