"""Suites that measure: tests/perf of the ZFS Test Suite, by variables of the shell and options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from storlab.cli.suite.choose import size_of
from storlab.cli.suite.originals import variables_for
from storlab.errors import UserError
from storlab.suites.adapters.zts import PERF, Zts, ZtsFile
from storlab.suites.perf_variables import perf_variables
from storlab.suites.run.own_files import own_adapter

if TYPE_CHECKING:
    from storlab.suites.run.asked import Asked

_NAMES = frozenset({PERF, "perf-regression", "perf-regression.run"})
_COLLECTORS = ("fio", "iostat", "mpstat", "perf", "vmstat")
"""What perf.shlib calls for each run of fio, and says nothing about if it is not there."""
_SMALLEST = 256 * 1024**2  # bytes: what perf.shlib's pools can be made on and filled by half


def measuring(asked: Asked, environment: Mapping[str, str], disk_size: str) -> Asked:
    """The same with disks of this size, and the variables that say what tests/perf measure.

    Raises ``UserError`` for what these can't be.
    """
    measures = not _NAMES.isdisjoint(asked.names)
    if not measures and not disk_size:
        return asked
    adapter = own_adapter(asked.names, asked.tests, asked.here, asked.permissions)
    if disk_size and isinstance(adapter, ZtsFile):
        raise UserError(
            f"--disk-size: {adapter.file} itself sets the size of its disks: change disk_size in its table guests"
        )
    if not isinstance(adapter, Zts):
        raise UserError("--disk-size is for the ZFS Test Suite: leave it out")
    options = adapter.options
    if disk_size:
        options = replace(options, disk_size=_size(disk_size))
    if measures:
        own = perf_variables(variables_for(environment, "", asked.here) | _delays(environment))
        options = replace(options, environment={**options.environment, **own})
        if not asked.allow_missing:  # without it, its profiles are all that lacks
            options = replace(options, programs=_COLLECTORS)
    return replace(asked, adapter=replace(adapter, options=options))


def _size(written: str) -> int:
    size = size_of(written, "--disk-size")
    if size < _SMALLEST:
        raise UserError(f"--disk-size {written}: the ZFS Test Suite's pools need 256M at least")
    return size


def _delays(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name == "ZINJECT_DELAYS"}
