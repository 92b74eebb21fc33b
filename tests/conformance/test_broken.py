"""The checks find mistakes: each class here has one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from pydantic import ConfigDict, Field, field_validator

from storlab.api import (
    Dir,
    Importer,
    Launch,
    Launcher,
    Layer,
    LayerContext,
    Measurements,
    MetricSpec,
    Needs,
    Node,
    NodeKind,
    ParseError,
    Part,
    Probe,
    ProbeContext,
    ProbeRecord,
    Resource,
    RunContext,
    Services,
    Subject,
    Undo,
    Value,
    Window,
    Workload,
    metric_frame,
    undo,
)
from storlab.conformance import (
    check_importer,
    check_layer,
    check_node_kind,
    check_probe,
    check_set_up,
    check_workload,
)


@undo("sound.remove")
async def remove(node: Node, arguments: Mapping[str, Any]) -> str | None:
    there = await node.run(["test", "-e", arguments["path"]], check=False)
    await node.run(["rm", "--force", "--", arguments["path"]])
    return "removed it" if there.ok else None


class Sound(Layer):
    """A file in the scratch folder, as a directory."""

    layer: Literal["sound"] = "sound"
    text: str = Field("x", description="What the file has.")

    takes: ClassVar = (None,)
    gives: ClassVar = Dir
    undoes: ClassVar[tuple[Undo, ...]] = (remove,)

    async def set_up(self, below: Resource | None, context: LayerContext) -> Resource:
        await context.register_undo("sound.remove", path=context.path("file"))
        await context.node.write(context.path("file"), self.text.encode())
        return Dir(context.node.name, context.path("file"))


def test_a_sound_layer_conforms(tmp_path: Path) -> None:
    check_layer(Sound)
    assert asyncio.run(check_set_up([Sound()], tmp_path)) == [{}]


class Abstract(Layer):
    """It does not say how it is set up."""

    layer: Literal["abstract"] = "abstract"
    takes: ClassVar = (None,)
    gives: ClassVar = Dir


class Undocumented(Sound):
    key: str = ""


class NoLiteral(Sound):
    """Its name is any text."""

    layer: str = "sound"  # type: ignore[assignment]


class Shouting(Sound):
    """Its name has a capital."""

    layer: Literal["Sound"] = "Sound"  # type: ignore[assignment]


class Forgiving(Sound):
    """It ignores misspelt keys."""

    model_config = ConfigDict(extra="ignore")


class Restless(Sound):
    """It needs something else each time."""

    def needs(self) -> Needs:
        return Needs(programs=(f"program-{next(_NUMBERS)}",))


_NUMBERS = count()


class Forgetful(Sound):
    """It forgets to list its undo."""

    undoes: ClassVar[tuple[Undo, ...]] = ()


@undo("loop.detach")
async def _another(node: Node, arguments: Mapping[str, Any]) -> str | None:
    return None


@undo("remove")
async def _vague(node: Node, arguments: Mapping[str, Any]) -> str | None:
    return None


class Usurper(Sound):
    """Its undo has the name of another one."""

    undoes: ClassVar[tuple[Undo, ...]] = (remove, _another)


class Vague(Sound):
    """Its undo has a name that could be anybody's, and is no coroutine."""

    undoes: ClassVar[tuple[Undo, ...]] = (remove, _vague, Undo("vague.undo", lambda node: None))  # type: ignore[arg-type, misc]


class FromNothing(Sound):
    """It takes nothing at all, not even nothing."""

    takes: ClassVar = ()  # type: ignore[assignment]


class Unlike(Sound):
    """It is not what it was once it was stored."""

    number: int = Field(0, description="Grows.")

    @field_validator("number")
    @classmethod
    def _grow(cls, number: int) -> int:
        return number + 1


@pytest.mark.parametrize(
    ("cls", "told"),
    [
        (Abstract, "Abstract does not define set_up"),
        (Undocumented, "Undocumented has no docstring of its own"),
        (Undocumented, "Undocumented does not describe its key key"),
        (NoLiteral, "NoLiteral has no `layer: Literal"),
        (Shouting, "Shouting is called 'Sound': names are lower-case words"),
        (Forgiving, "Forgiving changes model_config: unknown keys must not be ignored"),
        (Restless, "Restless needs() gives something else each time"),
        (Forgetful, "Forgetful registers the undo sound.remove, which is among nobody's `undoes`"),
        (Usurper, "Usurper has an undo loop.detach, and there is another one of that name"),
        (Vague, "Vague has an undo 'remove': write what.action"),
        (Vague, "Vague has an undo vague.undo that is no `async def (node, arguments)`"),
        (FromNothing, "FromNothing takes what is no tuple of resources"),
    ],
)
def test_a_mistake_of_a_layer_is_found(cls: type[Layer], told: str) -> None:
    with pytest.raises(AssertionError) as found:
        check_layer(cls)
    assert told in str(found.value)


def test_a_layer_that_is_another_one_once_it_was_stored_is_found() -> None:
    with pytest.raises(AssertionError, match=r"Unlike is another one after model_dump\(\)"):
        check_layer(Unlike, {"number": 1})


@undo("messy.again")
async def _again(node: Node, arguments: Mapping[str, Any]) -> str | None:
    return "did it"


class Messy(Sound):
    """It leaves a file, and gives what is of another node; its undo does something each time."""

    layer: Literal["messy"] = "messy"  # type: ignore[assignment]
    undoes: ClassVar[tuple[Undo, ...]] = (_again,)

    async def set_up(self, below: Resource | None, context: LayerContext) -> Resource:
        await context.register_undo("messy.again")
        await context.node.write(context.path("left"), b"")
        return Dir("elsewhere", context.path("left"))


def test_what_a_layer_does_wrong_is_found(tmp_path: Path) -> None:
    with pytest.raises(AssertionError) as found:
        asyncio.run(check_set_up([Messy()], tmp_path))
    told = str(found.value)
    assert "messy gives something of node elsewhere, and works on host" in told
    assert "messy.again is not idempotent: once more it did it" in told
    assert "0-left is left when all is undone" in told


class Load(Workload):
    """Counts the lines that its command printed."""

    kind: ClassVar[str] = "load"
    unit: ClassVar[str] = "1"

    def declares(self) -> tuple[MetricSpec, ...]:
        return (MetricSpec("lines", "1"),)

    async def launch(self, place: RunContext) -> Launch:
        return Launch(("true",))

    def parse(self, raw: Path) -> Measurements:
        if not (raw / "stdout").exists():
            raise ParseError("is missing", str(raw / "stdout"))
        lines = self.lines((raw / "stdout").read_bytes())
        return Measurements(metric_frame([Value("lines", lines, self.unit)]))

    def lines(self, text: bytes) -> float:
        return text.count(b"\n")


class Careless(Load):
    """It takes for granted that output is text in UTF-8."""

    kind: ClassVar[str] = "careless"

    def lines(self, text: bytes) -> float:
        return text.decode().count("\n")


class Undeclared(Load):
    """It declares other metrics than it gives."""

    kind: ClassVar[str] = "undeclared"

    def declares(self) -> tuple[MetricSpec, ...]:
        return (MetricSpec("words", "ms"), MetricSpec("words", "1"), MetricSpec("p9", "s", weight="rows"))


class Milli(Load):
    """It gives milliseconds, and no number where there are none."""

    kind: ClassVar[str] = "milli"
    unit: ClassVar[str] = "ms"

    def lines(self, text: bytes) -> float:
        return float("nan")


class Changing(Load):
    """It changes what it reads."""

    kind: ClassVar[str] = "changing"

    def parse(self, raw: Path) -> Measurements:
        measured = super().parse(raw)
        with (raw / "stdout").open("ab") as file:
            file.write(b"\n")
        return measured


class Nameless(Load):
    """It has the name of the class that it derives from."""


def test_a_sound_workload_conforms(tmp_path: Path) -> None:
    (tmp_path / "stdout").write_bytes(b"a\nb\n")
    check_workload(Load, raw=[tmp_path])


@pytest.mark.parametrize(
    ("cls", "told"),
    [
        (Careless, "Careless parse() raises UnicodeDecodeError (stdout, damaged in way "),
        (Undeclared, "Undeclared gives lines, which it does not declare"),
        (Undeclared, "Undeclared declares words in ms: base units are s, B, 1, 1/s, B/s"),
        (Undeclared, "Undeclared declares words twice"),
        (Undeclared, "Undeclared declares p9 by rows, which it does not declare"),
        (Milli, "Milli gives lines as nan: what was not measured is left out"),
        (Milli, "Milli gives lines with another unit, direction or way to combine than it declares"),
        (Changing, "Changing parses something else each time"),
        (Changing, "Changing changes the raw files as it parses them"),
        (Nameless, "Nameless has no `kind: ClassVar[str]"),
    ],
)
def test_a_mistake_of_a_workload_is_found(cls: type[Workload], told: str, tmp_path: Path) -> None:
    (tmp_path / "stdout").write_bytes(b"a\nb\n")
    with pytest.raises(AssertionError) as found:
        check_workload(cls, raw=[tmp_path])
    assert told in str(found.value)


class Blind(Probe):
    """It watches what no node has, and sees nothing."""

    kind: ClassVar[str] = "blind"
    watches: ClassVar = frozenset({"printers"})  # type: ignore[arg-type]
    metrics: ClassVar = ()

    @asynccontextmanager
    async def watch(self, context: ProbeContext) -> AsyncIterator[None]:
        yield

    def parse(self, record: ProbeRecord) -> Measurements:
        return Measurements()


def test_a_mistake_of_a_probe_is_found(tmp_path: Path) -> None:
    (tmp_path / "seen").write_bytes(b"1\n")
    with pytest.raises(AssertionError) as found:
        check_probe(Blind, records=[ProbeRecord(tmp_path, Window(0.0, 1.0), Subject(group="host"))])
    assert "Blind watches {'printers'}, of which a node has only machine, disks" in str(found.value)
    assert "Blind parses nothing out of" in str(found.value)


class Lost(NodeKind):
    """It does not say whether it is there for the session, and crosses by pigeon."""

    kind: Literal["lost"] = "lost"
    transports: ClassVar = frozenset({"pigeon"})  # type: ignore[arg-type]

    def memory_needed(self) -> int:
        return -1

    @classmethod
    def launcher(cls, services: Services) -> Launcher[Any]:
        return None  # type: ignore[return-value]


def test_mistakes_of_a_node_kind_are_found() -> None:
    with pytest.raises(AssertionError) as found:
        check_node_kind(Lost)
    told = str(found.value)
    assert "Lost does not say whether its nodes are opened for the whole `session`" in told
    assert "Lost has the transports {'pigeon'}" in told
    assert "Lost takes less than no memory or time" in told
    assert "Lost has no launcher" in told


class Lines(Importer):
    """A trial for each line, which is a number of seconds."""

    kind: ClassVar[str] = "lines"
    raw_name: ClassVar[str] = "lines.txt"
    primary: ClassVar[tuple[str, ...]] = ("time",)
    unknown: ClassVar[str] = "what took so long"

    def read(self, text: bytes, source: str, options: Mapping[str, Any]) -> Sequence[Part]:
        try:
            numbers = [int(line) for line in text.decode().splitlines()]
        except ValueError:
            raise ParseError("is no list of numbers", source, 1) from None
        if not numbers or max(numbers) > 1 << 40:
            raise ParseError("has no numbers, or large ones", source, 1)
        return [self.part(number) for number in numbers]

    def part(self, number: int) -> Part:
        return Part(Measurements(metric_frame([Value("time", number, "s", "lower")])))


class Primary(Lines):
    """It begins reports with what it never reads."""

    kind: ClassVar[str] = "primary"
    primary: ClassVar[tuple[str, ...]] = ("bandwidth",)


class Naive(Lines):
    """It takes numbers for granted, and lets Python's own errors through."""

    kind: ClassVar[str] = "naive"

    def read(self, text: bytes, source: str, options: Mapping[str, Any]) -> Sequence[Part]:
        return [self.part(int(line)) for line in text.splitlines()]


class Zero(Lines):
    """It gives a 0 for what failed, and levels that nobody can print."""

    kind: ClassVar[str] = "zero"

    def part(self, number: int) -> Part:
        measured = Measurements(metric_frame([Value("time", 0, "s")]))
        return Part(measured, {"a": "\x00"} if number else {}, status="failed")


class Anonymous(Lines):
    """Its errors do not say of which file they are."""

    kind: ClassVar[str] = "anonymous"
    unknown: ClassVar[str] = "Nothing."

    def read(self, text: bytes, source: str, options: Mapping[str, Any]) -> Sequence[Part]:
        return super().read(text, "", options)


def test_a_sound_importer_conforms() -> None:
    check_importer(Lines, [b"1\n2\n"])


@pytest.mark.parametrize(
    ("cls", "told"),
    [
        (Primary, "Primary begins reports with bandwidth, and gives none of these"),
        (Naive, "Naive read() raises ValueError (damaged in way "),
        (Naive, "Naive reads no trial, and does not raise ParseError"),
        (Zero, "Zero gives a trial that is failed without a reason, or with metrics"),
        (Zero, "Zero gives a as '\\x00': a level is a word that can be printed"),
        (Zero, "Zero gives trials with different factors"),
        (Anonymous, "Anonymous raises a ParseError that does not name the file: is no list of numbers"),
        (Anonymous, "Anonymous has an `unknown` that is empty or ends with a full stop"),
    ],
)
def test_a_mistake_of_an_importer_is_found(cls: type[Importer], told: str) -> None:
    with pytest.raises(AssertionError) as found:
        check_importer(cls, [b"0\n1\n2\n"])
    assert told in str(found.value)
