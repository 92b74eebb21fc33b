"""How bytes of somebody else's get to the parsers of ``attacks.parsers``, and what may come of it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from subprocess import run
from typing import Any

from msgspec import structs

from attacks import samples
from attacks.samples import golden
from crash.logs import Request, log_bytes
from probes import test_server
from storlab.analysis.foresight import noise_of, rounds_to_see, visible
from storlab.base.errors import ParseError, RecordsError, StorlabError
from storlab.base.programs import agent_path
from storlab.base.record import read_record
from storlab.blockio.text import event_form, tables
from storlab.blockio.trace_output import Counts, Lost, Output, read_output
from storlab.cli.trace.block import latency_rows, latency_table
from storlab.measurements import Measurements
from storlab.nodes.agent.protocol import Decoder, answer_of
from storlab.probes.alignment import AlignmentProbe
from storlab.probes.base import Probe, ProbeRecord, Window
from storlab.probes.sampling import NAME as SAMPLES
from storlab.probes.server import ServerProbe
from storlab.probes.subject import Subject
from storlab.report.language.format import duration as duration_text
from storlab.run.noise import MachineNoise
from storlab.run.recovery.journal import read_pending
from storlab.tools.fio.log_lines import is_cut
from storlab.tools.fio.logs import read_series
from storlab.tools.fio.operations import longest_gap, read_operations
from storlab.tools.importer import importer_of
from storlab.tools.kinds import is_of, reader_names
from storlab.tools.log_writes import Flag
from storlab.tools.pcap.capture import capture_of, decode
from storlab.tools.pcap.importer import part_of
from storlab.tools.pgbench.importer import read_pgbench
from storlab.tools.readers.rules import built_in
from storlab.workloads.base import NAME as EXIT_FILE
from storlab.workloads.base import elapsed_values, read_exit
from storlab.workloads.bonnie import BonnieWorkload
from storlab.workloads.command import MetricRule
from storlab.workloads.files.report import measurements, read_document
from storlab.workloads.fio.options import directions, duration, in_job_file, total_size
from storlab.workloads.fio.reach import jobs_in

WINDOW = Window(100.0, 110.0)
INTERVAL = 50.0  # s, of logs: of shorter ones there are millions until the latest time that a log may have


@dataclass(frozen=True)
class Parser:
    """``read`` gets the bytes, and a folder for those that read files. ``refuses``: errors with a message for users.

    ``slow``: one takes more than ten milliseconds. ``together``: the same of many at once, which costs less.
    """

    read: Callable[[bytes, Path], object]
    samples: Callable[[], Sequence[bytes]]
    refuses: type[Exception] = StorlabError
    slow: bool = False
    together: Callable[[Sequence[bytes], Path], object] | None = None


def of_text(read: Callable[[str], object]) -> Callable[[bytes, Path], object]:
    """What programs and kernels print is decoded before anything else."""
    return lambda data, _: read(data.decode(errors="replace"))


def as_x(read: Callable[[str, str], object]) -> Callable[[bytes, Path], object]:
    """Of text, in a file that is called ``x``."""
    return of_text(lambda text: read(text, "x"))


def of_bytes(read: Callable[[bytes], object]) -> Callable[[bytes, Path], object]:
    return lambda data, _: read(data)


def of_file(name: str, read: Callable[[Path], object]) -> Callable[[bytes, Path], object]:
    """``read`` gets the path of the file."""

    def written(data: bytes, folder: Path) -> object:
        (folder / name).write_bytes(data)
        return read(folder / name)

    return written


def of_record(kind: type) -> Callable[[bytes, Path], object]:
    return of_file("record.json", lambda path: read_record(path, kind))


def imported(kind: str, options: Mapping[str, Any] | None = None) -> Callable[[bytes, Path], object]:
    def read(data: bytes, _: Path) -> object:
        importer = importer_of(kind)
        importer.knows(data[:65536])
        try:
            parts = importer.read(data, "x", options or {})
        except ParseError as error:
            assert str(error).startswith("x")
            raise
        for part in parts:
            assert all(level.isprintable() for level in part.levels.values())
            assert part.measured.metrics["value"].is_finite().all()
        return parts

    return read


def by_reader(data: bytes) -> None:
    """By the reader whose output it is, or by whichever its length says."""
    names = [name for name in reader_names() if is_of(name, data)] or [reader_names()[len(data) % len(reader_names())]]
    for name in names:
        imported(name)(data, Path())


def samples_of_readers() -> list[bytes]:
    known = (built_in(name) for name in reader_names() if built_in(name).signatures)
    return [sample.text.encode() for reader in known for sample in reader.samples]


def of_pgbench(data: bytes, folder: Path) -> object:
    text, _, log = data.partition(b"\0")
    return read_pgbench(text.decode(errors="replace"), [log], "x")


def of_server(data: bytes, folder: Path) -> object:
    record = test_server.record(folder)
    (folder / "mysql.log").write_bytes(data)
    return ServerProbe().parse(record)


def capture_file(path: Path) -> object:
    with path.open("rb") as file:
        return importer_of("pcap").read_stream(file, "x", {})


def captured(data: bytes) -> None:
    capture = capture_of(decode(data, "x"))
    if capture.talks:
        part_of(capture)


def said_of_captures() -> list[bytes]:
    captures = golden("importing/golden/pcap-*.pcap*")()
    return [run([agent_path(), "pcap"], input=data, capture_output=True, check=False).stdout for data in captures]


def bonnie_run(data: bytes, folder: Path) -> None:
    """All that it leaves, with the same bytes as each: of a run that ended well, and of one that failed."""
    for ended in samples.exits():
        failed = ended.replace(b'"code": 0', b'"code": 1')
        assert failed != ended
        end = ended if len(data) % 2 else failed
        for name, text in {"stdout": data, "stderr": data, "free": data, EXIT_FILE: end}.items():
            (folder / name).write_bytes(text)
        with suppress(StorlabError):
            BonnieWorkload.model_validate({"size": "16M", "files": 1}).parse(folder)


def probed(probe: Probe, subject: Subject, name: str = SAMPLES) -> Callable[[bytes, Path], object]:
    return of_file(name, lambda path: probe.parse(ProbeRecord(path.parent, WINDOW, subject)))


def aligned(traces: Sequence[bytes], folder: Path) -> None:
    """As where a run's trials are read again."""
    records = []
    for number, data in enumerate(traces):
        (folder / str(number)).mkdir(exist_ok=True)
        (folder / str(number) / AlignmentProbe.output).write_bytes(data)
        records.append(ProbeRecord(folder / str(number), WINDOW, samples.ONE_DISK))
    for found in AlignmentProbe().parse_many(records):
        assert isinstance(found, Measurements) or str(found)


@lru_cache(100)
def _shown(counts: Counts) -> None:
    """Of many damaged traces, what this shows is as in the sample, and it takes longer than all else."""
    tables(counts.request_frame())
    counts.frames_by_issuer()
    latency_table(latency_rows(counts.latency_by_issuer()))


def shown_trace(path: Path) -> Output:
    """All that ``storlab trace`` and a report make of it."""
    try:
        output = read_output(path)
    except ParseError as error:
        assert str(error).startswith(f"{path}:"), error
        raise
    _shown(
        structs.replace(output.counts, final=True, monotonic_ns=0, realtime_ns=0, others=(), lost=Lost(), in_flight=0)
    )
    event_form(None).rows([("vda", "write", "sync", 4096, 8, 77, "fio", 3)])
    return output


def fio_logs(data: bytes, folder: Path) -> None:
    path = folder / "x_clat.1.log"
    path.write_bytes(data)
    is_cut(path)
    for read in (
        lambda: read_series(folder, "x", INTERVAL, ["a"]),
        lambda: read_operations({1: path}, INTERVAL),
        lambda: longest_gap([path], 1.0, INTERVAL, 100.0),
    ):
        read()


def job_file(lines: str) -> None:
    jobs = jobs_in(lines)
    total_size(jobs), duration(jobs, 1.0), directions(jobs)
    in_job_file(lines, lambda value: f"/x/{value}")


def files_measured(data: bytes) -> None:
    try:
        measurements(read_document(data, "stdout"))
    except ParseError as error:
        assert str(error).startswith("stdout: ") and len(str(error)) < 500
        raise


def pending(path: Path) -> None:
    try:
        read_pending(path)
    except RecordsError as error:
        assert re.match(rf"{path}:\d+ is damaged", str(error)), error
        raise


def exit_file(path: Path) -> None:
    record = read_exit(path.parent)
    record.describe()
    elapsed_values(record)


def noise(path: Path) -> None:
    """What `storlab plan` makes of it."""
    read = read_record(path, MachineNoise)
    duration_text(round(1000 * max(read.seconds, read.overhead or 0.0)))
    with suppress(ValueError):
        sd = noise_of(read.values)[0].sd
        visible(sd, 30, 0.05)
        rounds_to_see(0.1, float(f"{sd:.0e}"), 0.05)  # forecasts are kept, and take longer than all else


def write_logs() -> list[bytes]:
    requests = [Request(2, b"a" * 512), Request(flags=Flag.FLUSH), Request(0, b"", Flag.DISCARD, 8)]
    return [log_bytes(requests), log_bytes([*requests, Request(flags=Flag.MARK, mark=b"here")], count=2)]


def answered(data: bytes) -> None:
    for frame in Decoder().feed(data):
        answer_of(frame)


TABLE = {"value": ["IOPS:1/s:higher", "lat"], "factor_column": ["fs"]}
TIMED = {"value": ["IOPS:M/s", "lat"], "factor_column": ["fs"], "round_column": "rep", "time_column": "t"}
RULES = (
    MetricRule.model_validate({"name": "a", "regex": r"^rate: ([\d.,e+-]+)", "pick": "sum", "unit": "1/s"}),
    MetricRule.model_validate({"name": "b", "json": "runs[].rate", "pick": "max", "unit": "1/s"}),
)


def ruled(text: str) -> None:
    for rule in RULES:
        try:
            assert math.isfinite(rule.read(text, "stdout"))
        except ParseError as error:
            assert str(error).startswith("stdout: metric "), error
