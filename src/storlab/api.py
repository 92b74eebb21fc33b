"""All that an extension is made of, in one place: what to derive from, what that gets, and what it gives; and the
checks of ``storlab.conformance``, by which a test suite finds whether an extension does what is expected of it.

What is promised: names in ``__all__``, here and there, keep their meaning, parameters and fields as RELEASING.md says.
From 1.0 on they only go away, or ask for more, with a new MAJOR version; until then with a new MINOR one, and
CHANGELOG.md says so. New names, and new parameters and fields with a default, may come with any MINOR version. Whatever
is imported from elsewhere in the package may change at any time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storlab.base.errors import (
    CommandFailed,
    DiskFull,
    MissingTool,
    NodeError,
    NodeLost,
    ParseError,
    SafetyError,
    StorlabError,
    TimedOut,
    TrialError,
    Unsupported,
    UserError,
)
from storlab.base.programs import agent_path
from storlab.base.reach import (
    Beside,
    Choice,
    Command,
    Device,
    Found,
    InGuest,
    KernelSetting,
    Library,
    Listens,
    Metric,
    OwnName,
    Pattern,
    Program,
    Prose,
    Reach,
    Reaching,
    ReadsFile,
    Script,
    WritesFile,
    options_of,
)
from storlab.base.units import Duration, Size
from storlab.layers.base import Crossing, Layer, LayerContext
from storlab.layers.fs.mount import Mount, parse_mountinfo
from storlab.layers.resources import Dir, Disk, Export, File, Pool, Resource, Server
from storlab.layers.server.base import ServerContext, ServerLayer
from storlab.measurements import (
    CHECK_COLUMNS,
    HISTOGRAM_COLUMNS,
    METRIC_COLUMNS,
    REQUEST_COLUMNS,
    SERIES_COLUMNS,
    Measurements,
    metric_frame,
)
from storlab.metrics import MetricSpec, Value, declared_by, latencies, percentiles_of
from storlab.nodes.agents import AgentLauncher
from storlab.nodes.demands import Demands
from storlab.nodes.identity import NodeIdentity
from storlab.nodes.kind import Launcher, Loss, NodeKind, Prepared, Services, Transport
from storlab.nodes.needs import Needs
from storlab.nodes.node import Exit, Node, Process
from storlab.nodes.process import ExitRecord
from storlab.nodes.processes import end_marked
from storlab.nodes.undo import LONG, RunName, RunPath, Undo, refuse_foreign, remove_folder, undo
from storlab.probes.base import Probe, ProbeContext, ProbeRecord, Window
from storlab.probes.sampling import around, read_samples, sampling
from storlab.probes.subject import End, Interface, Kind, ProcessGroup, Service, Subject
from storlab.tools.importer import Importer, Part
from storlab.workloads.base import Launch, OptionError, RunContext, Workload, read_exit

if TYPE_CHECKING:
    from storlab.conformance import check_extension, check_set_up
else:

    def __getattr__(name: str) -> object:
        """The checks, which load all that runs studies: only test suites need that, and no extension at work."""
        from storlab import conformance

        if name in conformance.__all__:
            return getattr(conformance, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "CHECK_COLUMNS", "HISTOGRAM_COLUMNS", "LONG", "METRIC_COLUMNS", "REQUEST_COLUMNS", "SERIES_COLUMNS",
    "AgentLauncher", "Beside", "Choice", "Command", "CommandFailed", "Crossing", "Demands", "Device", "Dir", "Disk",
    "DiskFull", "Duration", "End", "Exit", "ExitRecord", "Export", "File", "Found", "Importer", "InGuest", "Interface",
    "KernelSetting", "Kind", "Launch", "Launcher", "Layer", "LayerContext", "Library", "Listens", "Loss",
    "Measurements", "Metric", "MetricSpec", "MissingTool", "Mount", "Needs", "Node", "NodeError", "NodeIdentity",
    "NodeKind", "NodeLost", "OptionError", "OwnName", "ParseError", "Part", "Pattern", "Pool", "Prepared", "Probe",
    "ProbeContext", "ProbeRecord", "Process", "ProcessGroup", "Program", "Prose", "Reach", "Reaching", "ReadsFile",
    "Resource", "RunContext", "RunName", "RunPath", "SafetyError", "Script", "Server", "ServerContext", "ServerLayer",
    "Service", "Services", "Size", "StorlabError", "Subject", "TimedOut", "Transport", "TrialError", "Undo",
    "Unsupported", "UserError", "Value", "Window", "Workload", "WritesFile", "agent_path", "around", "check_extension",
    "check_set_up", "declared_by", "end_marked", "latencies", "metric_frame", "options_of", "parse_mountinfo",
    "percentiles_of", "read_exit", "read_samples", "refuse_foreign", "remove_folder", "sampling", "undo",
]  # fmt: skip
