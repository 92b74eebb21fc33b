"""All parsers of what others wrote, with sound samples of it and the errors by which they may refuse damaged ones."""

from __future__ import annotations

from collections import deque
from io import BytesIO

import msgspec
from tools.suite_reference import EXPECTATIONS

from attacks import readers as by
from attacks import samples
from attacks.readers import Parser
from attacks.samples import few, golden, sampled, these
from importing.test_pgbench import LOG, SUMMARY
from layers.test_nbd_export import LISTING
from layers.test_parsers import PINGING, STATUS
from nodes.test_shaping import CONNECTIONS, FEATURES, LINK, PING, QUEUES
from probes import HERE, test_counters, test_profile, test_server, test_share_requests, test_zfs
from probes.test_backing import PATHS
from storlab.base.errors import ProtocolError, RecordsError, StudyError, UserError
from storlab.images.cache import ImageManifest
from storlab.images.debian import parse_stanzas
from storlab.images.module_tree import parse_aliases, parse_builtin, parse_filesystems, parse_needs, parse_soft
from storlab.layers.block.queue import new_state, parse_queue
from storlab.layers.block.queue_files import QUEUE
from storlab.layers.fs.image_base import parse_image_info
from storlab.layers.fs.mkfs import own_types
from storlab.layers.fs.mount import parse_mountinfo
from storlab.layers.fs.superblocks import parse_dump_super, parse_dumpe2fs, parse_xfs_info
from storlab.layers.net.nbd_export import parse_nbd_list
from storlab.layers.net.nvme import parse_instance
from storlab.layers.server.running import Answers
from storlab.layers.share.nfs_export import parse_exports, parse_mountstats
from storlab.layers.share.smb import parse_debug_data
from storlab.layers.zfs.module import parse_online, parse_parameters, parse_properties, parse_version
from storlab.layers.zfs.pool import is_only_member, parse_layout
from storlab.nodes.console import killed_for_memory, panic, tail
from storlab.nodes.kinds.vm.causes import last_word
from storlab.nodes.kinds.vm.emulator import Acceleration
from storlab.nodes.shaping.queues import parse_connections, parse_features, parse_link, parse_ping, parse_queues
from storlab.probes.alignment import AlignmentProbe
from storlab.probes.base import NOTES, Window, read_notes
from storlab.probes.counters import LOADS, CountersProbe, read_loads
from storlab.probes.disks import BACKING, StallsProbe
from storlab.probes.host_load import HostLoadProbe
from storlab.probes.locks.probe import LocksProbe
from storlab.probes.processes import ProcessesProbe
from storlab.probes.profile import ProfileProbe
from storlab.probes.share_requests import ShareRequestsProbe, parse_histogram
from storlab.probes.stacks import NAME as STACKS
from storlab.probes.subject import NAME as SUBJECT
from storlab.probes.subject import Subject, read_subject
from storlab.probes.tcp.probe import TcpProbe
from storlab.probes.zfs import iostat
from storlab.probes.zfs.probe import ZfsProbe
from storlab.records.run_folder import TrialRecord
from storlab.run.recovery.journal import JOURNAL
from storlab.study.study import parse_study
from storlab.suites.bisect import parse_steps
from storlab.suites.check_text import groups_in, read_check, read_excludes, read_group_list
from storlab.suites.expectations import read_expectations
from storlab.suites.groups import parse_find
from storlab.suites.ktap import judged, read_ktap
from storlab.suites.records.folder import parse_results
from storlab.suites.records.sources import console
from storlab.suites.run.own_files import read_own_expectations
from storlab.suites.runfile import RunfileError
from storlab.suites.selection import parse_tags
from storlab.suites.zts_text import console_line, read_results
from storlab.tools.fio.histogram import read_histogram_logs
from storlab.tools.kinds import is_fio_log, signatures_of
from storlab.tools.load_averages import parse_host_loads
from storlab.tools.log_writes import read_log
from storlab.tools.pcap.text import Text
from storlab.tools.readers.rules import reader_of
from storlab.tools.table.suggest import suggestion_for
from storlab.tools.zfs import parse_counters, parse_histograms, parse_pool_look, parse_transaction_groups
from storlab.tools.zfs_perf import parse_config, parse_zpool_iostat
from storlab.workloads.base import NAME as EXIT_FILE
from storlab.workloads.base import OptionError
from storlab.workloads.fio.reach import bad_option, complaint
from storlab.workloads.ledger import read_commits
from suite.samples import REPORT, RUNFILE, attempt, sayings, suite_of
from suite.test_adapters import QUICK
from suite.test_own_files import EXAMPLE, groups_of

PARSERS: dict[str, Parser] = {
    # What is by.imported
    "fio": Parser(
        by.imported("fio"), golden("formats/fio/golden/*.json", "importing/fio/*-*.*", "importing/golden/fio-*")
    ),
    "falcon": Parser(by.imported("falcon"), golden("importing/falcon/results/test1/[a,h]*/zvol-512.txt")),
    "zpool iostat -v": Parser(by.as_x(parse_zpool_iostat), golden("importing/zfs-perf/zpool.iostat")),
    "zpool iostat -w": Parser(
        by.of_text(lambda text: parse_histograms(text, "waits", "x")), golden("probes/golden/zpool-iostat-w.txt")
    ),
    "config.json of tests/perf": Parser(
        by.of_bytes(lambda data: parse_config(data, "x")), golden("importing/zfs-perf/config.json")
    ),
    "load averages": Parser(
        by.of_text(lambda text: parse_host_loads(text, "w")), golden("importing/falcon/results/test1/host/*")
    ),
    "sysbench": Parser(by.imported("sysbench"), few("importing/golden/sysbench*", rb"\[ \d+s \]|.* \|", 4)),
    "pgbench": Parser(by.imported("pgbench"), golden("importing/golden/pgbench[-_]*")),
    "pgbench, live": Parser(by.of_pgbench, these(SUMMARY.encode() + b"\0" + LOG)),
    "elbencho": Parser(by.imported("elbencho"), golden("importing/golden/elbencho-*")),
    "readers": Parser(by.of_bytes(by.by_reader), by.samples_of_readers, slow=True),
    "reader of a user's": Parser(
        by.of_text(lambda text: reader_of(text, "x")), golden("../examples/readers/mytool.toml"), ValueError, slow=True
    ),
    "which tool it was": Parser(
        by.of_bytes(lambda data: (signatures_of(data), is_fio_log(data), suggestion_for(data, "x"))),
        golden("importing/golden/*"),
    ),
    "vdbench": Parser(by.imported("vdbench"), golden("importing/golden/vdbench-*")),
    "bonnie": Parser(by.imported("bonnie"), golden("importing/golden/bonnie*")),
    "pcap": Parser(by.imported("pcap"), golden("importing/golden/pcap-*"), slow=True),
    "pcap, from disk": Parser(by.of_file("x", by.capture_file), golden("importing/golden/pcap-*.pcap*"), slow=True),
    "tcpdump's text": Parser(
        by.of_bytes(lambda data: deque(Text("x").records(BytesIO(data)), maxlen=0)),
        golden("importing/golden/pcap-tcpdump*"),
    ),
    "what the agent says of captures": Parser(by.of_bytes(by.captured), by.said_of_captures),
    "bonnie, live": Parser(by.bonnie_run, golden("workloads/golden/bonnie.*")),
    "blkalgn": Parser(by.imported("blkalgn"), these(*samples.BLKALGN)),
    "csv": Parser(by.imported("csv", by.TABLE), these(*samples.CSV)),
    "csv, timed": Parser(by.imported("csv", by.TIMED), these(*samples.CSV)),
    "virtiofs-tests": Parser(by.imported("virtiofs-tests"), these(*samples.VIRTIOFS)),
    "logs of fio": Parser(
        by.fio_logs, these("50003, 5000, 0, 4096, 0, 0\n50004, 7000, 1, 4096, 0, 0\n" * 3, "1, 2, 2, 3\n")
    ),
    "histogram logs of fio": Parser(
        by.of_file("x", lambda path: read_histogram_logs({1: path}, by.INTERVAL, ["a"])), samples.histogram_log
    ),
    # What loads and probes leave
    "files": Parser(by.of_bytes(by.files_measured), samples.files),
    "rules": Parser(
        by.of_text(by.ruled), these("x\nrate: 1,000.5\nrate: 2e3\n", '{"runs": [{"rate": 1}, {"rate": 2.5}]}')
    ),
    "commits of a ledger": Parser(by.of_bytes(read_commits), these('{"elapsed": 1.5, "latencies": [0.5, 0.25, 1e-9]}')),
    "logs of writes": Parser(by.of_file("write.log", read_log), by.write_logs),
    "exit.json": Parser(by.of_file(EXIT_FILE, by.exit_file), samples.exits),
    "host-load": Parser(by.probed(HostLoadProbe(), Subject(group="host", disks=("vda",))), samples.host_load),
    "stalls": Parser(
        by.probed(StallsProbe(), samples.ONE_DISK),
        these(sampled([samples.DISK], *([samples.stats(at // 2)] for at in range(7)))),
    ),
    "backing": Parser(
        by.probed(BACKING, samples.ONE_DISK),
        these(sampled(list(PATHS.values()), *([samples.stats(at)] * 2 for at in (1, 9)))),
    ),
    "processes": Parser(
        by.probed(ProcessesProbe(), samples.ONE_GUEST),
        these(sampled(samples.OF_QEMU, *(map(samples.qemu, range(100, 500, 100))))),
    ),
    "alignment": Parser(
        by.probed(AlignmentProbe(), samples.ONE_DISK, AlignmentProbe.output),
        samples.traced,
        slow=True,
        together=by.aligned,
    ),
    "trace": Parser(by.of_file(AlignmentProbe.output, by.shown_trace), samples.traced),
    "locks": Parser(by.probed(LocksProbe(), samples.ONE_DISK, LocksProbe.output), samples.lock_waits),
    "tcp": Parser(by.probed(TcpProbe(), samples.ONE_DISK, TcpProbe.output), samples.connections),
    "counters": Parser(
        by.probed(CountersProbe(), HERE, CountersProbe.output), these(test_counters.printed(*test_counters.COUNTED))
    ),
    "counts of loads": Parser(
        by.of_file(LOADS, lambda path: read_loads(path.parent)), these(b'[{"counts": {"cycles": 5}, "without": {}}]')
    ),
    "profile": Parser(by.probed(ProfileProbe(), HERE, STACKS), these(test_profile.printed(*test_profile.LINES))),
    "share-requests": Parser(by.probed(ShareRequestsProbe(), test_share_requests.EVERY), samples.share_requests),
    "zfs": Parser(by.probed(ZfsProbe(), test_zfs.POOL), these(test_zfs.TRIAL)),
    "counters of ZFS": Parser(by.as_x(parse_counters), these(*test_zfs.FILES[:4])),
    "transaction groups": Parser(by.as_x(parse_transaction_groups), these(test_zfs.FILES[4])),
    "zpool iostat": Parser(
        by.of_file(iostat.NAME, lambda path: [*iostat.values(iostat.read(path.parent, Window(0.0, 1e9)))]),
        these(test_zfs.IOSTAT),
    ),
    "a line of zpool iostat": Parser(by.as_x(parse_pool_look), these(test_zfs.ROW)),
    "CPUs that are online": Parser(by.of_text(parse_online), these("0-3,8,10-11\n")),
    "server": Parser(by.of_server, these(test_server.ANSWERS.encode())),
    "notes": Parser(by.of_file(NOTES, lambda path: read_notes(path.parent)), these('["a", "b"]')),
    "subject": Parser(by.of_file(SUBJECT, lambda path: read_subject(path.parent)), these(*samples.SUBJECT_JSON)),
    # What tools and kernels print
    "histograms of events": Parser(
        by.of_text(parse_histogram), golden("probes/golden/fuse_request_*.txt", "probes/golden/9p_client_req.txt")
    ),
    "mountinfo": Parser(by.of_text(parse_mountinfo), golden("layers/golden/mountinfo.txt")),
    "dumpe2fs": Parser(by.of_text(parse_dumpe2fs), golden("layers/golden/dumpe2fs.txt")),
    "xfs_info": Parser(by.of_text(parse_xfs_info), golden("layers/golden/xfs_info.txt")),
    "dump-super": Parser(by.of_text(parse_dump_super), golden("layers/golden/dump_super.txt")),
    "wipefs": Parser(
        by.of_bytes(lambda data: (own_types(data, "a"), is_only_member(data, "p"))), these(*samples.WIPEFS)
    ),
    "queue": Parser(
        by.of_text(lambda text: parse_queue({"scheduler": text, "nr_requests": text})), these("[none] kyber")
    ),
    "queue as new": Parser(
        by.of_text(lambda text: new_state(dict.fromkeys(QUEUE, text), text, "1")), these("1280", "6.18")
    ),
    "qemu-img": Parser(by.of_text(parse_image_info), these(*samples.QEMU_IMG)),
    "tc": Parser(by.of_text(parse_queues), these(QUEUES), ValueError),
    "ip link": Parser(by.of_text(parse_link), these(LINK), ValueError),
    "ethtool": Parser(by.of_text(parse_features), these(FEATURES)),
    "ping": Parser(by.of_text(parse_ping), these(PING)),
    "ss": Parser(by.of_text(parse_connections), these(CONNECTIONS)),
    "qemu-nbd": Parser(by.of_text(parse_nbd_list), these(LISTING)),
    "mountstats": Parser(
        by.of_text(lambda text: parse_mountstats(text, "/srv/a b")), golden("layers/golden/mountstats.txt")
    ),
    "exports": Parser(by.of_text(parse_exports), golden("layers/golden/nfsd_exports.txt")),
    "cifs": Parser(
        by.of_text(lambda text: parse_debug_data(text, "//10.213.0.2/share")),
        golden("layers/golden/cifs_debug_data.txt"),
    ),
    "ping that goes on": Parser(by.of_text(lambda text: Answers("node s", "10.0.0.1", 5.0).take(text)), these(PINGING)),
    "a new NVMe controller": Parser(by.of_text(parse_instance), these("instance=0,cntlid=1\n")),
    "zpool status": Parser(
        by.of_text(parse_layout), lambda: [*golden("layers/golden/zpool_status.txt")(), STATUS.encode()]
    ),
    "zfs get": Parser(by.of_text(parse_properties), golden("layers/golden/*_get.txt")),
    "zfs parameters": Parser(by.of_text(parse_parameters), few("layers/golden/zfs_parameters.txt", b"/sys", 20)),
    "zfs version": Parser(by.of_text(parse_version), golden("layers/golden/zfs_version.txt")),
    "fio's complaints": Parser(by.of_text(lambda text: (complaint(text), bad_option(text))), these(*samples.SAID)),
    "console": Parser(
        by.of_text(lambda text: (panic(text), killed_for_memory(text), last_word(text), tail(text))),
        these(*samples.KERNEL),
    ),
    "modules": Parser(
        by.of_text(lambda text: (parse_needs(text), parse_builtin(text), parse_soft(text), parse_aliases(text))),
        these(*samples.MODULES),
    ),
    "filesystems": Parser(
        by.of_bytes(lambda data: parse_filesystems(data.decode(errors="replace"), data)),
        these(*samples.MODULES, "ext4.alias=fs-ext4\0"),
    ),
    "stanzas of apt": Parser(by.of_text(parse_stanzas), these(*samples.STANZAS)),
    "zts-report.py": Parser(by.of_text(lambda text: read_expectations(text, "report.py")), these(REPORT)),
    "console of the ZFS Test Suite": Parser(
        by.of_text(lambda text: [*read_results(text.splitlines())]), these(console_line(attempt("a/b"), "tester"))
    ),
    "KTAP": Parser(by.of_text(lambda text: judged(read_ktap(text.splitlines()), 0)), golden("suite/golden/*.ktap")),
    "check of xfstests and blktests": Parser(
        by.of_text(lambda text: read_check(text.splitlines(), "generic/001", 0)),
        these(*(text for _, text in sayings("said-by-check.txt"))),
    ),
    "groups of xfstests": Parser(
        by.of_text(lambda text: (read_group_list(text), groups_in(text), read_excludes(text))),
        these(QUICK, "001 auto quick\n"),
    ),
    "find": Parser(by.of_bytes(lambda data: parse_find(data, "root:x:0\n")), these("f755 /a/b\0d755 /a\0")),
    # What is written by users, and what Storlab wrote
    "study": Parser(
        by.of_bytes(lambda data: parse_study(data, "study.toml", lambda name: "")),
        golden("../src/storlab/studies/*.toml"),
        slow=True,
    ),
    "runfile": Parser(by.of_text(suite_of), these(RUNFILE), RunfileError),
    "list of expectations": Parser(
        by.of_file("expected.toml", read_own_expectations), these(EXPECTATIONS.read_text()), StudyError
    ),
    "suite file": Parser(
        by.of_text(lambda text: groups_of(text, "scrub/setup")), these(EXAMPLE.read_text()), StudyError
    ),
    "tags": Parser(by.of_text(lambda text: parse_tags(text)(["a"])), these("a and not (b or c), d"), UserError),
    "job file": Parser(by.of_text(by.job_file), these(*samples.JOBS), OptionError),
    "journal": Parser(by.of_file(JOURNAL, by.pending), samples.journal, RecordsError),
    "trial": Parser(by.of_record(TrialRecord), these(*samples.TRIAL_JSON), RecordsError),
    "results of a suite": Parser(
        by.of_bytes(lambda data: parse_results(data, "results.jsonl")),
        these(msgspec.json.encode(attempt("a/b")).decode() + "\n"),
        RecordsError,
    ),
    "console as a run": Parser(
        by.of_bytes(lambda data: console(data, "log")), golden("suite/golden/logs/*.log"), UserError
    ),
    "steps of a bisection": Parser(
        by.of_bytes(lambda data: parse_steps(data, "tests.jsonl")), these('{"number":1,"passed":true}\n'), RecordsError
    ),
    "noise": Parser(by.of_file("m.json", by.noise), these(*samples.NOISE_JSON), RecordsError),
    "image": Parser(by.of_record(ImageManifest), these(*samples.IMAGE_JSON), RecordsError),
    "acceleration": Parser(by.of_record(Acceleration), these('{"accelerator": "tcg", "reason": "x"}'), RecordsError),
    "agent": Parser(by.of_bytes(by.answered), samples.stream, ProtocolError),
}
