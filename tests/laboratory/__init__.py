"""Storlab as its users run it, in a folder of a test's own, and what it must not leave behind there."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import pytest

from laboratory.preloaded import Forked, can_fork
from laboratory.trust import allowing, trusting
from storlab.records.run_folder import RunFolder, TrialRecord
from storlab.run.executor import Outcome, resume_run, run_study
from storlab.run.limits import AS_PLANNED, Extent
from storlab.run.observer import Observer
from storlab.study.study import load_study

L = TypeVar("L", bound="Laboratory")

COMMAND = (sys.executable, "-m", "storlab.cli.main")


def nothing_known(said: str, folder: Path) -> bool:
    """Whether ``clean`` knows of nothing from ``folder``; dead hosts of other tests leave loop devices for a moment."""
    return said == "No run is known that could have left anything.\n" or folder.name not in said


@dataclass(frozen=True)
class Ended:
    """How a command ended, and all that it said."""

    status: int
    stdout: str
    stderr: str

    def __str__(self) -> str:
        return f"status {self.status}\n{self.stdout}\n{self.stderr}"

    def with_status(self, status: int) -> Ended:
        """Fails the test, with all that was said, unless it ended so."""
        assert self.status == status, str(self)
        return self


@dataclass
class Laboratory:
    """One folder with a scratch folder, runs, and the state that ``storlab clean`` looks at."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    _started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scratch.mkdir(parents=True, exist_ok=True)
        # Loads of root's are another user, who sees of a test's folder what everybody does.
        for folder in (self.folder, *self.folder.parents):
            if folder.stat().st_uid == os.getuid() and len(folder.parts) > 2:
                folder.chmod(folder.stat().st_mode | 0o055)

    @property
    def scratch(self) -> Path:
        """Where studies put their files."""
        return self.folder / "scratch"

    @property
    def out(self) -> Path:
        """The folder of the run."""
        return self.folder / "out"

    @property
    def run_folder(self) -> RunFolder:
        """The run, opened."""
        return RunFolder.open(self.out)

    @property
    def links(self) -> list[str]:
        """The runs that ``clean`` without a folder would look at."""
        folder = self.folder / "state" / "storlab" / "runs"
        return sorted(link.name for link in folder.iterdir()) if folder.is_dir() else []

    def study(self, text: str) -> Path:
        """A study file; ``scratch`` is filled in."""
        path = self.folder / "study.toml"
        path.write_text(f'schema = 1\ntitle = "A test"\nscratch = "{self.scratch}"\n{text}')
        return path

    def start(
        self, *arguments: str | Path, wrapper: Iterable[str] = (), trusted: bool = True, **options: Any
    ) -> subprocess.Popen[bytes]:
        """Start a command and go on. ``trusted``: whatever its study wants is allowed."""
        state = self.folder / "state"
        own = {"XDG_STATE_HOME": str(state), "STORLAB_LOCKS": str(state / "locks"), "COLUMNS": "200"}
        environment = {**os.environ, **own, **self.environment}
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, **options}
        words = [str(each) for each in arguments]
        words = allowing(words, environment.get("STORLAB_LAB")) if trusted else words
        process: subprocess.Popen[bytes]
        if not wrapper and can_fork(environment) and options.keys() == {"stdin", "stdout", "stderr"}:
            process = Forked(words, environment, **options)
        else:
            argv = [*wrapper, *COMMAND, *words]
            process = subprocess.Popen(argv, env=environment, start_new_session=True, **options)
        self._started.append(process)
        return process

    def close(self) -> None:
        """End what a test that failed left running, so that only that test fails."""
        running = [process for process in self._started if process.poll() is None]
        for process in running:
            process.kill()
        if running:
            self.storlab("clean", "--yes")
        for process in self._started:
            process.communicate()

    def storlab(self, *arguments: str | Path, timeout: float = 120, **options: Any) -> Ended:
        return ended(self.start(*arguments, **options), timeout)

    def run(self, study: str, *arguments: str, **options: Any) -> Ended:
        """``storlab run``, into ``out``."""
        return self.storlab("run", self.study(study), "--out", self.out, "--seed", "1", *arguments, **options)

    def start_run(self, study: str, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        """As ``run``, and go on."""
        return self.start("run", self.study(study), "--out", self.out, "--seed", "1", *arguments, **options)

    def execute(self, study: str, observer: Observer | None = None, *, unconfined: bool = False) -> Outcome:
        """As ``run``, but in this process, which is faster: no imports, no report."""
        loaded = load_study(self.study(study))
        rounds = loaded.model.repeat.min, loaded.model.repeat.max
        permissions = trusting(loaded, unconfined=unconfined)
        return asyncio.run(run_study(loaded, self.out, 1, rounds, observer or Observer(), permissions))

    def succeed(
        self, study: str, observer: Observer | None = None, *, trials: int = 1, unconfined: bool = False
    ) -> Outcome:
        """As ``execute``: so many trials are done, and nothing is left."""
        outcome = self.execute(study, observer, unconfined=unconfined)
        ends = [(record.status, record.reason) for record in self.records()]
        assert ends == [("done", None)] * trials, ends
        assert self.leftovers() == []
        return outcome

    def go_on(self, observer: Observer | None = None, extent: Extent = AS_PLANNED) -> Outcome:
        """As ``storlab resume``, in this process."""
        manifest = self.run_folder.manifest
        permissions = trusting(manifest.study(), unconfined=manifest.unconfined)
        return asyncio.run(resume_run(self.out, observer or Observer(), extent, permissions))

    def records(self) -> list[TrialRecord]:
        return list(self.run_folder.records())

    def journal(self) -> list[dict[str, Any]]:
        """The whole lines of the journal so far."""
        path = self.out / "journal.jsonl"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    def leftovers(self) -> list[str]:
        """All that Storlab could have left, in words. Waits a little for what is just dying."""
        wait_until(lambda: not self._leftovers(), 30.0)
        return self._leftovers()

    def _leftovers(self) -> list[str]:
        mounts = [f"mount {line.split()[4]}" for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        return [
            *(mount for mount in mounts if str(self.folder) in mount and "storlab-" in mount),
            *(f"loop device over {back}" for back in backing_files() if self._ours(back)),
            *(f"process {pid}" for pid in self.processes()),
            *(f"file {path}" for path in self.scratch.iterdir() if "storlab-" in path.name),
            *(f"cgroup {path}" for path in self._cgroups()),
            *(f"link {link}" for link in self.links),
            *(f"folder {path}" for at in ("/tmp", "/var/tmp") for path in Path(at).glob(f"storlab-{self.identity}*")),
            *(f"network {path}" for path in Path("/run/netns").glob(f"storlab-{self.identity}*")),
        ]

    def _ours(self, back: str) -> bool:
        return back.startswith(f"{self.folder}/") and "storlab-" in back

    def processes(self) -> list[int]:
        """Controllers, agents and all that they started: the environment is inherited."""
        running = {process.pid for process in self._started if process.poll() is None}
        return sorted(running | {*processes_with(f"XDG_STATE_HOME={self.folder / 'state'}")})

    def commands(self) -> dict[int, list[str]]:
        """The words of each of these processes. One that ends while this looks is none of them."""
        found = {}
        for pid in self.processes():
            with contextlib.suppress(OSError):
                found[pid] = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
        return found

    def sleeps(self) -> bool:
        """Whether a load that only sleeps is running."""
        return any(words[0] == "sleep" and words[1] != "--version" for words in self.commands().values())

    @property
    def identity(self) -> str:
        """The run's own name, which is part of those of all that it makes."""
        manifest = self.out / "manifest.json"  # which one that was killed at its very beginning does not have
        return str(json.loads(manifest.read_text())["run"]) if manifest.exists() else "none"

    def _cgroups(self) -> list[Path]:
        found = [Path(folder, name) for folder, below, _ in os.walk("/sys/fs/cgroup") for name in below]
        return [path for path in found if path.name.startswith(f"storlab-{self.identity}")]


@contextlib.contextmanager
def opened(lab: L) -> Iterator[L]:
    """A laboratory with a state of its own, for several tests or one. Nothing may be left in it at the end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(lab.folder / "state"))
        try:
            yield lab
        finally:  # also where a suite that takes an hour is interrupted
            lab.close()
        assert lab.leftovers() == []


def ended(process: subprocess.Popen[bytes], timeout: float = 120) -> Ended:
    """Wait for a command that was started. One that hangs is killed, and fails the test with what it said."""
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        stdout, stderr = process.communicate()
        raise AssertionError(f"it hangs; it said {(stdout or b'').decode()}{(stderr or b'').decode()}") from None
    return Ended(process.returncode, (stdout or b"").decode(), (stderr or b"").decode())


def kill(process: subprocess.Popen[bytes], number: signal.Signals = signal.SIGKILL) -> None:
    """Send a signal to this process alone, unless it has ended."""
    if process.poll() is None:
        os.kill(process.pid, number)


def interrupt(process: subprocess.Popen[bytes], signals: Iterable[signal.Signals]) -> None:
    """Send signals, each one after the first when that was answered: of two that wait, the kernel makes one."""
    first, *more = signals
    kill(process, first)
    for number in more:
        _wait_to_hear(process, b"is finished first")
        kill(process, number)


def _wait_to_hear(process: subprocess.Popen[bytes], words: bytes) -> None:
    """Until it has said this as an error. What it said until then is taken."""
    assert process.stderr is not None
    said = b""
    while words not in said:
        ready, _, _ = select.select([process.stderr], [], [], 60)
        part = os.read(process.stderr.fileno(), 4096) if ready else b""
        assert part, f"it never said {words.decode()}, but {said.decode()}"
        said += part


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(**fixtures: object) -> None:
        asyncio.run(test(**fixtures))

    return run


def wait_until(condition: Callable[[], object], timeout: float = 60.0) -> bool:
    """Look again and again; whether it came true."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def wait_for(process: subprocess.Popen[bytes], condition: Callable[[], object]) -> None:
    """Wait for something to come true while a process runs; fails with what it said where it ends before.

    What came true may be false again a moment later.
    """
    came_true = False

    def settled() -> bool:
        nonlocal came_true
        came_true = bool(condition())
        return came_true or process.poll() is not None

    wait_until(settled)
    if not (came_true or condition()):
        kill(process)
        raise AssertionError(f"it never came true: {ended(process)}")


def processes_with(variable: str) -> list[int]:
    """Living processes that have this in their environment, but not this one."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if variable.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            pass
    return [pid for pid in found if pid != os.getpid()]


def backing_files() -> list[str]:
    listing = subprocess.run(["losetup", "--list", "--json", "--output", "BACK-FILE"], capture_output=True, check=True)
    rows = json.loads(listing.stdout)["loopdevices"] if listing.stdout.strip() else []
    return [row["back-file"] or "" for row in rows]
