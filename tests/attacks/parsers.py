"""All parsers of what others wrote, with sound samples of it and the errors by which they may refuse damaged ones."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from subprocess import run
from typing import Any

import msgspec
from msgspec import structs
from tools.suite_reference import EXPECTATIONS

from attacks import samples
from attacks.samples import few, golden, sampled, these
from crash.logs import Request, log_bytes
from importing.test_pgbench import LOG, SUMMARY
from layers.test_nbd_export import LISTING
from layers.test_parsers import PINGING, STATUS
from nodes.test_shaping import CONNECTIONS, FEATURES, LINK, PING, QUEUES
from probes import test_server, test_share_requests
from probes.test_backing import PATHS
from storlab.analysis.noise_floor import noise_of, rounds_to_see, visible
from storlab.blockio.text import event_form, tables
from storlab.blockio.trace_output import Counts, Lost, Output, read_output
from storlab.cli.trace.latencies import latency_rows, latency_table
from storlab.errors import ParseError, ProtocolError, RecordsError, StorlabError, StudyError, UserError
from storlab.formats.fio.histogram_log import read_histogram_logs
from storlab.formats.fio.log_lines import is_cut
from storlab.formats.fio.logs import read_series
from storlab.formats.fio.operations import longest_gap, read_operations
from storlab.formats.log_writes import Flag, read_log
from storlab.formats.pcap.agent_output import decode
from storlab.formats.pcap.capture import capture_of
from storlab.formats.pcap.text import Text
from storlab.formats.pgbench.results import read_pgbench
from storlab.images.apt import parse_stanzas
from storlab.images.manifest import ImageManifest
from storlab.images.module_tree import parse_aliases, parse_builtin, parse_filesystems, parse_needs, parse_soft
from storlab.importing.pcap import part_of
from storlab.importing.registry import importer_of
from storlab.importing.signatures import is_fio_log, signatures_of
from storlab.importing.table.suggest import options_for
from storlab.layers.block.queue import parse_queue
from storlab.layers.fs.mkfs import own_types, parse_dump_super, parse_dumpe2fs, parse_xfs_info
from storlab.layers.fs.mount import parse_mountinfo
from storlab.layers.image.base import parse_image_info
from storlab.layers.net.nvme import parse_instance
from storlab.layers.server.nbd_export import parse_nbd_list
from storlab.layers.share.nfs_tables import parse_exports, parse_mountstats
from storlab.layers.share.smb import parse_debug_data
from storlab.layers.share.watch import Answers
from storlab.layers.zfs.module import parse_parameters, parse_version
from storlab.layers.zfs.pool import is_only_member, parse_layout
from storlab.layers.zfs.properties import parse_changed, parse_properties
from storlab.measurements import Measurements
from storlab.nodes.agent.binary import agent_path
from storlab.nodes.agent.events import answer_of
from storlab.nodes.agent.protocol import Decoder
from storlab.nodes.kinds.vm.accelerator import Acceleration
from storlab.nodes.kinds.vm.causes import killed_for_memory, last_word, panic, tail
from storlab.nodes.shaping.read_back import parse_connections, parse_features, parse_link, parse_ping, parse_queues
from storlab.probes.alignment.probe import NOTES, TRACE, AlignmentProbe, read_notes
from storlab.probes.backing import BACKING
from storlab.probes.base import Probe, ProbeRecord, Window
from storlab.probes.host_load import HostLoadProbe
from storlab.probes.processes import ProcessesProbe
from storlab.probes.requests.histogram import parse_histogram
from storlab.probes.requests.probe import ShareRequestsProbe
from storlab.probes.sampling import NAME as SAMPLES
from storlab.probes.server.probe import ServerProbe
from storlab.probes.stalls import StallsProbe
from storlab.probes.subject import NAME as SUBJECT
from storlab.probes.subject import Subject, read_subject
from storlab.probes.tcp.probe import NAME as TCP
from storlab.probes.tcp.probe import TcpProbe
from storlab.record import read_record
from storlab.records.run_folder import TrialRecord
from storlab.records.suite import parse_results
from storlab.records.suite.sources import console
from storlab.report.model.format import duration as duration_text
from storlab.run.noise import MachineNoise
from storlab.run.recovery.journal import JOURNAL, read_pending
from storlab.run.suite.bisect.steps import parse_steps
from storlab.run.suite.own_files import read_own_expectations
from storlab.suite.check_text import groups_in, read_check, read_excludes, read_group_list
from storlab.suite.expectations import read_expectations
from storlab.suite.installed import parse_find
from storlab.suite.ktap import judged, read_ktap
from storlab.suite.runfile import RunfileError
from storlab.suite.selection import parse_tags
from storlab.suite.zts_text import console_line, read_results
from storlab.workloads.base import NAME as EXIT_FILE
from storlab.workloads.base import OptionError, elapsed_values, read_exit
from storlab.workloads.bonnie.workload import BonnieWorkload
from storlab.workloads.command import MetricRule
from storlab.workloads.files.report import measurements, read_document
from storlab.workloads.fio.checking import bad_option, complaint
from storlab.workloads.fio.options import directions, duration, in_job_file, total_size
from storlab.workloads.fio.reach import jobs_in
from storlab.workloads.ledger.results import read_commits
from suite.samples import REPORT, RUNFILE, attempt, suite_of
from suite.test_adapters import BLKTESTS, FSTESTS, KSELFTEST, KUNIT, NESTED, QUICK
from suite.test_own_files import EXAMPLE, groups_of

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
        return importer.read(data, "x", options or {})

    return read


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
        (folder / str(number) / TRACE).write_bytes(data)
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
    output = read_output(path)
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


def packed_logs(data: bytes, folder: Path) -> None:
    path = folder / "x_clat.1.log.fz"
    path.write_bytes(data)
    is_cut(path)
    read_series(folder, "x", INTERVAL, ["a"])
    read_operations({1: path}, INTERVAL)


def repacked(data: bytes, folder: Path) -> None:
    """What is damaged is within: else zlib's own sum finds nearly all of it."""
    packed_logs(zlib.compress(data, 1), folder)


def job_file(lines: str) -> None:
    jobs = jobs_in(lines)
    total_size(jobs), duration(jobs, 1.0), directions(jobs)
    in_job_file(lines, lambda value: f"/x/{value}")


def files_measured(data: bytes) -> None:
    measurements(read_document(data, "stdout"))


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
        with suppress(ParseError):
            rule.read(text, "stdout")


PARSERS: dict[str, Parser] = {
    # What is imported
    "fio": Parser(imported("fio"), golden("formats/fio/golden/*.json")),
    "sysbench": Parser(imported("sysbench"), few("importing/golden/sysbench*", rb"\[ \d+s \]|.* \|", 4)),
    "pgbench": Parser(imported("pgbench"), golden("importing/golden/pgbench[-_]*")),
    "pgbench, live": Parser(of_pgbench, these(SUMMARY.encode() + b"\0" + LOG)),
    "elbencho": Parser(imported("elbencho"), golden("importing/golden/elbencho-*")),
    "which tool it was": Parser(
        of_bytes(lambda data: (signatures_of(data), is_fio_log(data), options_for(data))), golden("importing/golden/*")
    ),
    "vdbench": Parser(imported("vdbench"), golden("importing/golden/vdbench-*")),
    "bonnie": Parser(imported("bonnie"), golden("importing/golden/bonnie*")),
    "pcap": Parser(imported("pcap"), golden("importing/golden/pcap-*"), slow=True),
    "pcap, from disk": Parser(of_file("x", capture_file), golden("importing/golden/pcap-*.pcap*"), slow=True),
    "tcpdump's text": Parser(
        of_bytes(lambda data: deque(Text("x").records(BytesIO(data)), maxlen=0)),
        golden("importing/golden/pcap-tcpdump*"),
    ),
    "what the agent says of captures": Parser(of_bytes(captured), said_of_captures),
    "bonnie, live": Parser(bonnie_run, golden("workloads/golden/bonnie.*")),
    "blkalgn": Parser(imported("blkalgn"), these(*samples.BLKALGN)),
    "csv": Parser(imported("csv", TABLE), these(*samples.CSV)),
    "csv, timed": Parser(imported("csv", TIMED), these(*samples.CSV)),
    "virtiofs-tests": Parser(imported("virtiofs-tests"), these(*samples.VIRTIOFS)),
    "logs of fio": Parser(
        fio_logs, these("50003, 5000, 0, 4096, 0, 0\n50004, 7000, 1, 4096, 0, 0\n" * 3, "1, 2, 2, 3\n")
    ),
    "packed logs of fio": Parser(packed_logs, lambda: [zlib.compress(each) for each in samples.samples_of_fio()]),
    "samples in packed logs": Parser(repacked, samples.samples_of_fio),
    "histogram logs of fio": Parser(
        of_file("x", lambda path: read_histogram_logs({1: path}, INTERVAL, ["a"])), samples.histogram_log
    ),
    # What loads and probes leave
    "files": Parser(of_bytes(files_measured), samples.files),
    "rules": Parser(of_text(ruled), these("x\nrate: 1,000.5\nrate: 2e3\n", '{"runs": [{"rate": 1}, {"rate": 2.5}]}')),
    "commits of a ledger": Parser(of_bytes(read_commits), these('{"elapsed": 1.5, "latencies": [0.5, 0.25, 1e-9]}')),
    "logs of writes": Parser(of_file("write.log", read_log), write_logs),
    "exit.json": Parser(of_file(EXIT_FILE, exit_file), samples.exits),
    "host-load": Parser(probed(HostLoadProbe(), Subject(group="host", disks=("vda",))), samples.host_load),
    "stalls": Parser(
        probed(StallsProbe(), samples.ONE_DISK),
        these(sampled([samples.DISK], *([samples.stats(at // 2)] for at in range(7)))),
    ),
    "backing": Parser(
        probed(BACKING, samples.ONE_DISK),
        these(sampled(list(PATHS.values()), *([samples.stats(at)] * 2 for at in (1, 9)))),
    ),
    "processes": Parser(
        probed(ProcessesProbe(), samples.ONE_GUEST),
        these(sampled(samples.OF_QEMU, *(map(samples.qemu, range(100, 500, 100))))),
    ),
    "alignment": Parser(probed(AlignmentProbe(), samples.ONE_DISK, TRACE), samples.traced, slow=True, together=aligned),
    "trace": Parser(of_file(TRACE, shown_trace), samples.traced),
    "tcp": Parser(probed(TcpProbe(), samples.ONE_DISK, TCP), samples.connections),
    "share-requests": Parser(probed(ShareRequestsProbe(), test_share_requests.EVERY), samples.share_requests),
    "server": Parser(of_server, these(test_server.ANSWERS.encode())),
    "notes": Parser(of_file(NOTES, lambda path: read_notes(path.parent)), these('["a", "b"]')),
    "subject": Parser(of_file(SUBJECT, lambda path: read_subject(path.parent)), these(*samples.SUBJECT_JSON)),
    # What tools and kernels print
    "histograms of events": Parser(
        of_text(parse_histogram), golden("probes/golden/fuse_request_*.txt", "probes/golden/9p_client_req.txt")
    ),
    "mountinfo": Parser(of_text(parse_mountinfo), golden("layers/golden/mountinfo.txt")),
    "dumpe2fs": Parser(of_text(parse_dumpe2fs), golden("layers/golden/dumpe2fs.txt")),
    "xfs_info": Parser(of_text(parse_xfs_info), golden("layers/golden/xfs_info.txt")),
    "dump-super": Parser(of_text(parse_dump_super), golden("layers/golden/dump_super.txt")),
    "wipefs": Parser(of_bytes(lambda data: (own_types(data, "a"), is_only_member(data, "p"))), these(*samples.WIPEFS)),
    "queue": Parser(of_text(lambda text: parse_queue({"scheduler": text, "nr_requests": text})), these("[none] kyber")),
    "qemu-img": Parser(of_text(parse_image_info), these(*samples.QEMU_IMG)),
    "tc": Parser(of_text(parse_queues), these(QUEUES), ValueError),
    "ip link": Parser(of_text(parse_link), these(LINK), ValueError),
    "ethtool": Parser(of_text(parse_features), these(FEATURES)),
    "ping": Parser(of_text(parse_ping), these(PING)),
    "ss": Parser(of_text(parse_connections), these(CONNECTIONS)),
    "qemu-nbd": Parser(of_text(parse_nbd_list), these(LISTING)),
    "mountstats": Parser(
        of_text(lambda text: parse_mountstats(text, "/srv/a b")), golden("layers/golden/mountstats.txt")
    ),
    "exports": Parser(of_text(parse_exports), golden("layers/golden/nfsd_exports.txt")),
    "cifs": Parser(
        of_text(lambda text: parse_debug_data(text, "//10.213.0.2/share")), golden("layers/golden/cifs_debug_data.txt")
    ),
    "ping that goes on": Parser(of_text(lambda text: Answers("node s", "10.0.0.1", 5.0).take(text)), these(PINGING)),
    "a new NVMe controller": Parser(of_text(parse_instance), these("instance=0,cntlid=1\n")),
    "zpool status": Parser(
        of_text(parse_layout), lambda: [*golden("layers/golden/zpool_status.txt")(), STATUS.encode()]
    ),
    "zfs get": Parser(
        of_text(lambda text: (parse_properties(text), parse_changed(text))), golden("layers/golden/*_get.txt")
    ),
    "zfs parameters": Parser(of_text(parse_parameters), few("layers/golden/zfs_parameters.txt", b"/sys", 20)),
    "zfs version": Parser(of_text(parse_version), golden("layers/golden/zfs_version.txt")),
    "fio's complaints": Parser(of_text(lambda text: (complaint(text), bad_option(text))), these(*samples.SAID)),
    "console": Parser(
        of_text(lambda text: (panic(text), killed_for_memory(text), last_word(text), tail(text))),
        these(*samples.KERNEL),
    ),
    "modules": Parser(
        of_text(lambda text: (parse_needs(text), parse_builtin(text), parse_soft(text), parse_aliases(text))),
        these(*samples.MODULES),
    ),
    "filesystems": Parser(
        of_bytes(lambda data: parse_filesystems(data.decode(errors="replace"), data)),
        these(*samples.MODULES, "ext4.alias=fs-ext4\0"),
    ),
    "stanzas of apt": Parser(of_text(parse_stanzas), these(*samples.STANZAS)),
    "zts-report.py": Parser(of_text(lambda text: read_expectations(text, "report.py")), these(REPORT)),
    "console of the ZFS Test Suite": Parser(
        of_text(lambda text: [*read_results(text.splitlines())]), these(console_line(attempt("a/b"), "tester"))
    ),
    "KTAP": Parser(of_text(lambda text: judged(read_ktap(text.splitlines()), 0)), these(NESTED, KSELFTEST, KUNIT)),
    "check of xfstests and blktests": Parser(
        of_text(lambda text: read_check(text.splitlines(), "generic/001", 0)), these(*FSTESTS, *BLKTESTS)
    ),
    "groups of xfstests": Parser(
        of_text(lambda text: (read_group_list(text), groups_in(text), read_excludes(text))),
        these(QUICK, "001 auto quick\n"),
    ),
    "find": Parser(of_bytes(lambda data: parse_find(data, "root:x:0\n")), these("f755 /a/b\0d755 /a\0")),
    # What is written by users, and what Storlab wrote
    "runfile": Parser(of_text(suite_of), these(RUNFILE), RunfileError),
    "list of expectations": Parser(
        of_file("expected.toml", read_own_expectations), these(EXPECTATIONS.read_text()), StudyError
    ),
    "suite file": Parser(of_text(lambda text: groups_of(text, "scrub/setup")), these(EXAMPLE.read_text()), StudyError),
    "tags": Parser(of_text(lambda text: parse_tags(text)(["a"])), these("a and not (b or c), d"), UserError),
    "job file": Parser(of_text(job_file), these(*samples.JOBS), OptionError),
    "journal": Parser(of_file(JOURNAL, read_pending), samples.journal, RecordsError),
    "trial": Parser(of_record(TrialRecord), these(*samples.TRIAL_JSON), RecordsError),
    "results of a suite": Parser(
        of_bytes(lambda data: parse_results(data, "results.jsonl")),
        these(msgspec.json.encode(attempt("a/b")).decode() + "\n"),
        RecordsError,
    ),
    "console as a run": Parser(
        of_text(lambda text: console(text.splitlines(), "log")), these(console_line(attempt("a/b"), "t")), UserError
    ),
    "steps of a bisection": Parser(
        of_bytes(lambda data: parse_steps(data, "tests.jsonl")), these('{"number":1,"passed":true}\n'), RecordsError
    ),
    "noise": Parser(of_file("m.json", noise), these(*samples.NOISE_JSON), RecordsError),
    "image": Parser(of_record(ImageManifest), these(*samples.IMAGE_JSON), RecordsError),
    "acceleration": Parser(of_record(Acceleration), these('{"accelerator": "tcg", "reason": "x"}'), RecordsError),
    "agent": Parser(of_bytes(answered), samples.stream, ProtocolError),
}
