"""Virtual machines of a laboratory's runs, seen from outside: their QEMUs and their consoles."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from laboratory import Laboratory, wait_until
from laboratory.samples import sample
from storlab.images.cache import storlab_cache
from storlab.images.image import find_image
from storlab.records.run_folder import TrialRecord
from storlab.run.observer import Observer
from storlab.run.planning.order import PlannedTrial
from storlab.study.cells import Cell

BEGUN = "the load has begun"
FOREVER_AT_FIRST = f'echo "{BEGUN}" > /dev/console; if [ $trial = 1 ]; then exec sleep 3600; fi'
"""A load that never ends in the first trial, and at once in the others."""

MOUNTED = '{ layer = "virtio-blk" }, { layer = "mkfs", type = "ext4" }, { layer = "mount" }]'
DISK = '[{ layer = "file", size = "64M" }, { layer = "virtio-blk" }]'
EXT4 = f'[{{ layer = "file", size = "64M" }}, {MOUNTED}'
_WHEN = re.compile(r" \(\d+\.\d s into the load\)$")
_NAME = re.compile(r"(?P<name>[^,]+),process=")


def guests(load: str, *, rounds: int = 1, trial: str = "", rest: str = "", **keys: str | None) -> str:
    """A study whose load is a shell script in each of two guests. It finds ``$trial``, ``$node`` and ``$target``.

    ``keys`` of the group of nodes, as TOML, ``from_`` among them; ``rest``: tables at the end.
    """
    keys = {name.rstrip("_"): value for name, value in keys.items()}
    defaults = {"count": "2", "memory": '"192M"', "stack": '[{ layer = "directory" }]'}
    group = "\n".join(f"{key} = {value}" for key, value in {**defaults, **keys}.items() if value is not None)
    trial = f", {trial}" if trial else ""
    return sample(__file__, "cases/guests.toml", rounds=rounds, trial=trial, group=group, load=load, rest=rest)


def qemus(lab: Laboratory) -> dict[str, int]:
    found = {}
    for pid, words in lab.commands().items():
        named = words[words.index("-name") + 1] if "-name" in words else ""
        if words[0] == "qemu-system-x86_64" and (name := _NAME.match(named)):
            found[name["name"]] = pid
    return found


def console(lab: Laboratory, guest: str, trial: int = 1) -> str:
    """What the console of a trial's guest says so far."""
    path = lab.out / "trials" / f"{trial:04}" / guest / "console.log"
    return path.read_text(errors="replace") if path.exists() else ""


def begun(lab: Laboratory, *names: str, trial: int = 1) -> bool:
    """Whether a load that says so has begun in all these guests."""
    return all(BEGUN in console(lab, name, trial) for name in names)


def kill_guest(lab: Laboratory, name: str, number: signal.Signals = signal.SIGKILL) -> None:
    os.kill(qemus(lab)[name], number)


@contextmanager
def once_begun(lab: Laboratory, names: tuple[str, ...], action: Callable[[], None]) -> Iterator[None]:
    """Do something, while the body runs, as soon as the first trial's load has begun in these guests."""
    over, errors = threading.Event(), []

    def act() -> None:
        wait_until(lambda: over.is_set() or begun(lab, *names), 240)  # beside many others a boot takes a minute
        try:
            assert begun(lab, *names), [console(lab, name) for name in names]
            action()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=act)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if errors:
        raise errors[0]


class WhenBegun(Observer):
    """Does something, of a cell's levels, as soon as the load of each trial has begun in these guests."""

    def __init__(self, lab: Laboratory, names: tuple[str, ...], action: Callable[[Mapping[str, str]], None]) -> None:
        self._lab, self._names, self._action = lab, names, action
        self.errors: list[BaseException] = []

    def trial_begins(self, planned: PlannedTrial, cell: Cell, left: tuple[float, float] | None) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._act, args=(planned.number, cell.levels))
        self._thread.start()

    def _act(self, trial: int, levels: Mapping[str, str]) -> None:
        try:
            wait_until(lambda: self._over.is_set() or begun(self._lab, *self._names, trial=trial), 240)
            if begun(self._lab, *self._names, trial=trial):
                self._action(levels)
        except BaseException as error:
            self.errors.append(error)

    def trial_ends(self, record: TrialRecord) -> None:
        self._over.set()
        self._thread.join()


def endings(lab: Laboratory) -> list[tuple[str, str | None]]:
    """How each trial ended, and why; without when something was lost, which is for chance."""
    return [(each.status, each.reason and _WHEN.sub("", each.reason)) for each in lab.records()]


def own_kernel(folder: Path) -> tuple[Path, Path]:
    """The image's kernel and a folder of its modules, as a user has them who built it.

    ``folder`` / cache is then a cache in which such a kernel may be made ready: the user's own one, by links.
    """
    image = find_image()
    extracted = folder / "modules"
    extract = ["fsck.erofs", f"--extract={extracted}", str(image.kernel.with_name("modules.erofs"))]
    subprocess.run(extract, check=True, capture_output=True)
    (modules,) = extracted.glob("**/lib/modules/*")
    parts = folder / "cache" / "storlab" / "images" / "parts"
    parts.mkdir(parents=True)
    for path in (storlab_cache() / "images").iterdir():
        if path.name != parts.name:
            (parts.parent / path.name).symlink_to(path)
    for path in (storlab_cache() / "images" / parts.name).iterdir():
        (parts / path.name).symlink_to(path)
    return image.kernel, modules
