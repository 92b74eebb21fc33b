"""The ZFS Test Suite, as Debian's ``zfs-test`` installs it, and any tests in the form of its runfiles.

Sources: ``zfs-tests.sh`` and ``test-runner.py`` of OpenZFS 2.3.2, whose environment scripts rely on. These two prepare
a machine and run the tests as a user with sudo; here the agent runs them as root, and they find what sudo would leave.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from storlab.suites.adapters.base import PLACE, Adapter, Launch, Needs, as_user, names_of
from storlab.suites.adapters.command import Command
from storlab.suites.expectations import read_expectations
from storlab.suites.groups import Installed
from storlab.suites.model import Expectations, Outcome, Script, Suite
from storlab.suites.runfile import Runfile, read_suite

_ROOT = "/usr/share/zfs"
STF_SUITE = f"{_ROOT}/zfs-tests"
_RUNFILES = f"{_ROOT}/runfiles"
PERF = "zts-perf"
_SUITES = {"zts": ("common.run", "linux.run"), "zts-sanity": ("sanity.run",), PERF: ("perf-regression.run",)}
_MEASURED, _EVIDENCE = ("perf_data",), "*.fio.*"
"""Where tests/perf lays what it measures (``get_perf_output_dir``), and the results of fio in it."""
_RUNNER = "tester"
_SECURE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # Debian's sudoers(5)
_SKIPPED = 4
_GIB = 1024**3
_TO_KMSG = 'echo "ZTS run $0" > /dev/kmsg; exec "$@"'


@dataclass(frozen=True)
class ZtsOptions:
    """What ``zfs-tests.sh`` has in place of defaults. ``files``: in place of disks; ``environment``: of all scripts.

    ``kmsg``: each script is named in the kernel's log as it starts. ``runner``: the user who runs the suite; ``plain``:
    tests that have nothing to do with ZFS, and do without what the suite's find around them. ``programs``: that guests
    must have beyond those of the suite.
    """

    filedir: str = PLACE
    disk_size: int = 4 * _GIB
    files: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    kmsg: bool = False
    disks: int = 3
    runner: str = _RUNNER
    plain: bool = False
    programs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Zts(Adapter):
    """The ZFS Test Suite. ``testdir``: where its tests are; another folder for tests of one's own."""

    testdir: str = STF_SUITE
    options: ZtsOptions = ZtsOptions()

    @property
    def name(self) -> str:
        return "zts"

    @property
    def runner(self) -> str:
        return self.options.runner

    @property
    def expectations_file(self) -> str | None:
        return f"{_ROOT}/test-runner/bin/zts-report.py"

    def files(self, name: str) -> tuple[str, ...] | None:
        if name.startswith(f"{_RUNFILES}/"):
            return (name,)
        if name in _SUITES:
            return tuple(f"{_RUNFILES}/{each}" for each in _SUITES[name])
        if "/" in name or name.startswith("."):
            return None
        return (f"{_RUNFILES}/{name.removesuffix('.run')}.run",)

    def groups(self, name: str, runfiles: Sequence[Runfile], installed: Installed) -> Suite:
        return read_suite(name, runfiles, installed, self.testdir)

    def launch(self, script: Script, variables: Mapping[str, str]) -> Launch:
        launch = replace(self._launch(script, variables), folders=_MEASURED, evidence=_EVIDENCE)
        if not self.options.kmsg:
            return launch
        return replace(launch, argv=("sh", "-c", _TO_KMSG, script.path, *launch.argv))

    def _launch(self, script: Script, variables: Mapping[str, str]) -> Launch:
        if self.options.plain:
            user = script.user or self.runner
            env = {**variables, **names_of(user)}
            return Launch((*as_user(user), script.file), env, f"{variables['TMPDIR']}/test_results")
        place = variables.get("TMPDIR", PLACE)
        cwd = f"{place}/test_results"
        runner = self.runner
        if script.user == "root":
            uid = variables.get("STORLAB_UID", "1000")  # its group has the same number, as useradd(8) has it on Debian
            command = f"/usr/bin/env TMPDIR={place} {script.file}"
            asked = {"SUDO_USER": runner, "SUDO_UID": uid, "SUDO_GID": uid, "SUDO_COMMAND": command}
            return Launch((script.file,), {**variables, **asked, "PATH": _SECURE_PATH, **names_of("root")}, cwd)
        as_runner = ("runuser", "-u", runner, "--")
        if script.user:
            sudo = ("sudo", "-E", "-u", script.user, "env", f"TMPDIR={place}")
            return Launch((*as_runner, *sudo, script.file), {**variables, **names_of(runner)}, cwd)
        return Launch((*as_runner, script.file), {**variables, **names_of(runner)}, cwd)

    def judge(self, script: Script, code: int | None, printed: Callable[[], str]) -> tuple[Outcome, str]:
        return {0: Outcome.PASS, _SKIPPED: Outcome.SKIP}.get(-1 if code is None else code, Outcome.FAIL), ""

    def needs(self) -> Needs:
        options = self.options
        if options.plain:
            plain = ("bash", "runuser")
            return Needs(plain, options.disks, options.disk_size, "command-set-up.sh", given=options.environment)
        programs = ("bash", "ksh", "mkfs.ext4", "runuser", "sudo", "zpool", *options.programs)
        given = {"RUNNER": options.runner, "STF_SUITE": STF_SUITE, **options.environment}
        if options.files:
            given |= {"FILES": " ".join(options.files), "FILESIZE": str(options.disk_size)}
        disks = 0 if options.files else options.disks
        return Needs(
            programs,
            disks,
            options.disk_size,
            "zts-set-up.sh",
            ("zfs", "loop"),
            place=options.filedir,
            tree=(_ROOT,),
            given=given,
            blank=True,
        )

    def expectations(self, source: str) -> Expectations:
        return read_expectations(source, self.expectations_file or "")


@dataclass(frozen=True)
class ChosenZts(Zts):
    """What is run of the suite is chosen by the options of its own programs, once a guest was looked into."""

    choose: Callable[[str, Sequence[Runfile], Installed], Suite] = lambda name, runfiles, installed: Suite(name, ())

    def groups(self, name: str, runfiles: Sequence[Runfile], installed: Installed) -> Suite:
        return self.choose(name, runfiles, installed)


@dataclass(frozen=True)
class ZtsFile(Command):
    """Tests that a suite file in TOML names, with what the scripts of the ZFS Test Suite find around them."""

    options: ZtsOptions = ZtsOptions()

    @property
    def runner(self) -> str:
        return self.options.runner

    def launch(self, script: Script, variables: Mapping[str, str]) -> Launch:
        launch = Zts(self.testdir, self.options).launch(replace(script, run=""), variables)
        argv = [word for each in launch.argv for word in (self.argv(script) if each == script.file else (each,))]
        return replace(launch, argv=tuple(argv), env={**launch.env, **self.spec.environment})

    def judge(self, script: Script, code: int | None, printed: Callable[[], str]) -> tuple[Outcome, str]:
        return Zts(self.testdir, self.options).judge(script, code, printed)

    def needs(self) -> Needs:
        own, zts = super().needs(), Zts(self.testdir, self.options).needs()
        modules = tuple(dict.fromkeys((*zts.modules, *own.modules)))
        programs = tuple(dict.fromkeys((*zts.programs, *own.programs)))
        return replace(
            zts, modules=modules, programs=programs, disks=own.disks, disk_size=own.disk_size, files=own.files
        )
