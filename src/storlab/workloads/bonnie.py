"""Workload ``bonnie``: Bonnie++ 2.00a on a directory. See bonnie++(8).

Three things that it always gets:

- ``-r 0``. Bonnie++ refuses a size below twice the memory, so that caches don't decide; a study has other means
  (``direct``, a guest with little memory, caches dropped), and could run no small size at all.
- ``-u root`` as root, without which it refuses to run; anybody else may not give ``-u``.
- ``-z``, the round's seed, so that all cells of a round seek to the same places.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import BeforeValidator, Field, model_validator

from storlab.base.errors import DiskFull, ParseError, TrialError
from storlab.base.text import is_whole
from storlab.base.units import Size, size_text
from storlab.layers.resources import Dir, Resource
from storlab.measurements import Measurements, metric_frame
from storlab.metrics import MetricSpec
from storlab.model import Model
from storlab.nodes.needs import Needs
from storlab.nodes.process import ExitRecord
from storlab.tools.bonnie.run import declared
from storlab.workloads.base import (
    ELAPSED,
    Launch,
    OptionError,
    RunContext,
    Work,
    Workload,
    bytes_of,
    elapsed_values,
    read_exit,
    unfinished,
)

# What Bonnie++ left of one trial, as measurements; or why it failed, which it says in few words and sometimes wrong.
#
# A write that a full disk cuts short sets no errno: Bonnie++ 2.00a then prints that of an earlier call ("Can't write
# block.: No such file or directory"). Of its tests of files, and of single characters, it prints none. Whether the
# disk was full, then follows from what was free before.

_CUT_SHORT = re.compile(r"Can't write block\.: (No such file or directory|Success|No space left on device|Disk quota)")
_NO_REASON = re.compile(r"Can't (write data|write\(\)|create|make directory)")


def read_results(raw: Path, free: Path, chunk: int, needed: tuple[int, int]) -> Measurements:
    """``free``: what was free before; ``chunk``: bytes, which its CSV doesn't say; ``needed``: bytes, and inodes.

    Raises ``DiskFull``, ``TimedOut`` or ``CommandFailed`` with Bonnie++'s own message, ``ParseError``.
    """
    from storlab.tools.bonnie.importer import read_bonnie  # not needed to load a study

    ended, said = read_exit(raw), bytes_of(raw / "stderr").decode(errors="replace")
    if ended.code != 0:
        raise _failure(ended, said, bytes_of(free), needed)
    source = str(raw / "stdout")
    runs, warnings = read_bonnie(bytes_of(raw / "stdout"), source)
    if len(runs) != 1:
        raise ParseError(f"holds {len(runs)} results of Bonnie++, and not one", source)
    (run,) = runs
    facts: dict[str, object] = {**run.told(), **({"io_chunk_size": str(chunk)} if "file_size" in run.facts else {})}
    notes = (*warnings, *filter(None, [run.untold()]))
    return Measurements(metric_frame([*run.values(), *elapsed_values(ended)]), warnings=notes, facts=facts)


def _failure(ended: ExitRecord, said: str, free: bytes, needed: tuple[int, int]) -> TrialError:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    message = next((line for line in lines if line.startswith("Can't ")), "")
    lack = _lack(free, needed)
    if not ended.timed_out and (_CUT_SHORT.match(message) or (lack and _NO_REASON.match(message))):
        return DiskFull(f"target full{lack and f': {lack}'} (bonnie++: {message})", said)
    return unfinished("bonnie++", ended, said, message)


def _lack(free: bytes, needed: tuple[int, int]) -> str:
    """Which of both there was too little of, in words; empty where that isn't known, or there was enough."""
    words = free.decode(errors="replace").split()
    if len(words) != 2 or not all(is_whole(word) for word in words):
        return ""
    (size, files), (space, inodes) = needed, map(int, words)
    if size > space:
        return f"bonnie++ writes {size_text(size)}, and {size_text(space)} was free"
    if files > inodes > 0:  # 0: there is no limit, or none that is known
        return f"bonnie++ creates {files} files, and {inodes} inodes were free"
    return ""


FREE = "free"
"""A file in the workload's folder: bytes and inodes that were free before, or nothing where they are not known."""

_MIB = 1024**2
_THOUSAND = 1024  # files, of which -n counts
_SEEDS = 2**31


class Files(Model):
    """What the tests of files create, read and delete, twice: in order, and at random."""

    number: int = Field(16, ge=1, le=99_999, description="How many, in units of 1024, as `bonnie++ -n` counts them.")
    max: Size = Field(0, le=2**30, description="Size of the largest, in bytes.")
    min: Size = Field(0, description="Size of the smallest, in bytes. Sizes are random between the two.")
    directories: int = Field(1, ge=1, le=99_999, description="Number of directories over which they are spread evenly.")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.min > self.max:
            raise OptionError("min is above max", "min")
        return self


def _files(value: object) -> object:
    return {"number": value} if isinstance(value, int) and not isinstance(value, bool) and value else value or None


class BonnieWorkload(Workload):
    """Runs Bonnie++ once: writing, rewriting, reading, seeking; then creating, reading and deleting files."""

    kind: ClassVar[str] = "bonnie"
    accepts: ClassVar[tuple[type[Resource], ...]] = (Dir,)

    size: Size = Field(
        description="Bytes that are written, rewritten and read: whole MiB, or 0 to leave these tests out. Smaller "
        "than the memory, they measure caches, unless `direct`."
    )
    files: Annotated[Files | None, BeforeValidator(_files)] = Field(
        None, description="Tests of many files: their number in units of 1024, or a table. 0: none."
    )
    chunk: Size = Field(8192, ge=256, le=_MIB, description="Bytes of one write or read: a power of two.")
    fast: bool = Field(False, description="Leave out the tests that write and read single characters (`-f`).")
    per_character: Size = Field(20 * _MIB, ge=_MIB, description="Bytes that those tests write and read: whole MiB.")
    seeks: int = Field(8192, ge=1, le=2**30, description="How often it seeks, all processes together.")
    seekers: int = Field(5, ge=1, le=1000, description="Processes that seek.")
    direct: bool = Field(False, description="O_DIRECT for blocks (`-D`); only with `fast`.")
    sync: bool = Field(False, description="fsync after each write, and of directories (`-b`).")

    @model_validator(mode="after")
    def _can_be_done(self) -> Self:
        for name in ("size", "per_character"):
            if getattr(self, name) % _MIB:
                raise OptionError(f"Bonnie++ takes whole MiB, not {size_text(getattr(self, name))}", name)
        if not self.size and self.files is None:
            raise OptionError("with a size of 0 and no files there is nothing to test", "size")
        if self.chunk & (self.chunk - 1):
            raise OptionError(f"{self.chunk} is no power of two", "chunk")
        if self.direct and self.chunk < 512:
            raise OptionError("with direct, at least 512 bytes: the smallest sector", "chunk")
        if self.direct and self.size and not self.fast:
            raise OptionError(
                "direct takes `fast = true`: Bonnie++ 2.00a writes single characters with O_DIRECT too, which no file "
                'system takes, and says "disk full?"',
                "direct",
            )
        return self

    def declares(self) -> tuple[MetricSpec, ...]:
        files = self.files is not None
        return (*declared(data=self.size > 0, per_character=not self.fast, files=files), *ELAPSED)

    def needs(self) -> Needs:
        return Needs(programs=("bonnie++",))

    def space(self) -> int:
        """At one time: the files of the last tests are made when those of the first are gone."""
        return max(self.size, self._of_files())

    def _of_files(self) -> int:
        return 0 if self.files is None else self.files.number * _THOUSAND * (self.files.max + self.files.min) // 2

    def work(self) -> Work:
        characters = 0 if self.fast or not self.size else 2 * self.per_character
        of_files = 4 * self.files.number * _THOUSAND if self.files is not None and self.sync else 0
        seeks = self.seeks if self.size else 0
        synced = self.size // self.chunk if self.sync else 0
        return Work(4 * self.size + characters + 2 * self._of_files(), of_files + seeks + synced)

    def leaves_out(self, warm_up: float) -> str:
        return "warm_up is left out: Bonnie++ has none, and all that it does is measured" if warm_up else ""

    def arguments(self, seed: int) -> list[str]:
        """All but where it works, and as whom."""
        size = f"{self.size // _MIB}:{self.chunk}:{self.seeks}:{self.seekers}" if self.size else "0"
        fast = ["-f"] if self.fast else [f"-f{self.per_character // _MIB}"]
        flags = [flag for flag, given in (("-D", self.direct), ("-b", self.sync)) if given]
        of = self.files
        # Without a chunk of its own: given the chunk of the tests of data, 2.00a ruins its heap and aborts.
        number = "0" if of is None else f"{of.number}:{of.max}:{of.min}:{of.directories}"
        return ["-q", "-m", "storlab", "-r", "0", "-s", size, "-n", number, *fast, *flags, "-z", str(seed)]

    async def prepare(self, place: RunContext) -> None:
        root = _root(place)
        await place.node.run(["rm", "-rf", "--", root])  # an earlier trial's, where stacks are kept
        await place.node.run(["mkdir", "--", root])
        listing = await place.node.run(["df", "--output=avail,iavail", "-B1", "--", root], check=False)
        words = listing.stdout.split()[-2:] if listing.ok else []
        await place.node.write(f"{place.folder}/{FREE}", b" ".join(words))

    async def launch(self, place: RunContext) -> Launch:
        is_root = (await place.node.output("id", "-u")).strip() == "0"
        user = ["-u", "root"] if is_root else []
        argv = ("bonnie++", "-d", _root(place), *user, *self.arguments(place.seed % _SEEDS))
        return Launch(argv, env={"LC_ALL": "C"}, cwd=place.folder)

    def parse(self, raw: Path) -> Measurements:
        files = 0 if self.files is None else self.files.number * _THOUSAND
        return read_results(raw, raw / FREE, self.chunk, (self.space(), files))


def _root(place: RunContext) -> str:
    return f"{place.path.rstrip('/')}/bonnie-{place.name}"
