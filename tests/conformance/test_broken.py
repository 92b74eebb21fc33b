"""The checks find mistakes: each class here has one, most of them by what it changes of a sound one."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import pytest
from pydantic import ConfigDict, Field, field_validator

from storlab import api
from storlab.conformance import check_extension, check_set_up


@api.undo("sound.remove")
async def remove(node: api.Node, path: api.RunPath) -> str | None:
    there = await node.run(["test", "-e", path], check=False)
    await node.run(["rm", "--force", "--", path])
    return "removed it" if there.ok else None


def like(base: type, name: str, **body: Any) -> Any:
    """A class of this name that differs from ``base`` in what is given."""
    return type(base)(name, (base,), {"__doc__": f"{name}, by itself.", "__module__": __name__, **body})


def mistakes(check: Callable[..., object], *given: Any, **named: Any) -> str:
    """What a check says that is wrong."""
    with pytest.raises(AssertionError) as found:
        check(*given, **named)
    return str(found.value)


class Sound(api.Layer):
    """A file in the scratch folder, as a directory."""

    layer: Literal["sound"] = "sound"
    text: api.OwnName = Field("x", description="What the file has.")

    takes: ClassVar = (None,)
    gives: ClassVar = api.Dir
    undoes: ClassVar[tuple[api.Undo, ...]] = (remove,)

    async def set_up(self, below: api.Resource | None, context: api.LayerContext) -> api.Resource:
        await context.register_undo("sound.remove", path=context.path("file"))
        await context.node.write(context.path("file"), self.text.encode())
        return api.Dir(context.node.name, context.path("file"))


def test_a_sound_layer_conforms_and_one_that_is_stored_otherwise_or_forgets_its_undo_does_not(tmp_path: Path) -> None:
    check_extension(Sound)
    assert asyncio.run(check_set_up([Sound()], tmp_path)) == [{}]
    undo_of_nobody = "Forgetful registers the undo sound.remove, which is among nobody's `undoes`"
    assert undo_of_nobody in mistakes(check_extension, Forgetful)
    assert "Unlike is another one after model_dump()" in mistakes(check_extension, Unlike, {"number": 1})


@api.undo("loop.detach")
async def _another(node: api.Node) -> str | None:
    return None


@api.undo("remove")
async def _vague(node: api.Node) -> str | None:
    return None


VAGUE = (remove, _vague, api.Undo("vague.undo", cast(Any, lambda node: None)))
NUMBERS = count()


def restless(_: api.Layer) -> api.Needs:
    return api.Needs(programs=(f"program-{next(NUMBERS)}",))


@pytest.mark.parametrize(
    ("name", "body", "told"),
    [
        ("Abstract", {"set_up": abstractmethod(lambda *_: None)}, ["does not define set_up"]),
        ("Undocumented", {"__annotations__": {"key": str}, "key": "", "__doc__": None},
            ["has no docstring of its own", "does not describe its key key"]),
        ("Untyped", {"__annotations__": {"table": dict[str, int]}, "table": Field({}, description="Numbers.")},
            ["does not say what a text of its key table.NAME can do"]),
        ("NoLiteral", {"__annotations__": {"layer": str}, "layer": "sound"}, ["has no `layer: Literal"]),
        ("Shouting", {"__annotations__": {"layer": Literal["Sound"]}, "layer": "Sound"},
            ["is called 'Sound': names are lower-case words"]),
        ("Forgiving", {"model_config": ConfigDict(extra="ignore")},
            ["changes model_config: unknown keys must not be ignored"]),
        ("Restless", {"needs": restless}, ["needs() gives something else each time"]),
        ("Usurper", {"undoes": (remove, _another)}, ["has an undo loop.detach, and there is another one of that name"]),
        ("Vague", {"undoes": VAGUE}, ["has an undo 'remove': write what.action",
            "has an undo vague.undo that is no `async def (node, …)` with a type for each argument"]),
        ("FromNothing", {"takes": ()}, ["takes what is no tuple of resources"]),
    ],
)  # fmt: skip
def test_a_mistake_of_a_layer_is_found(name: str, body: dict[str, Any], told: list[str]) -> None:
    found = mistakes(check_extension, like(Sound, name, **body))
    assert all(f"{name} {each}" in found for each in told), found


class Forgetful(Sound):
    """It forgets to list its undo."""

    undoes: ClassVar[tuple[api.Undo, ...]] = ()


class Unlike(Sound):
    """It is not what it was once it was stored."""

    number: int = Field(0, description="Grows.")

    @field_validator("number")
    @classmethod
    def _grow(cls, number: int) -> int:
        return number + 1


@api.undo("messy.again")
async def _again(node: api.Node) -> str | None:
    return "did it"


class Messy(Sound):
    """It leaves a file, and gives what is of another node; its undo does something each time."""

    layer: Literal["messy"] = "messy"  # type: ignore[assignment]
    undoes: ClassVar[tuple[api.Undo, ...]] = (_again,)

    async def set_up(self, below: api.Resource | None, context: api.LayerContext) -> api.Resource:
        await context.register_undo("messy.again")
        await context.node.write(context.path("left"), b"")
        return api.Dir("elsewhere", context.path("left"))


def test_what_a_layer_does_wrong_is_found(tmp_path: Path) -> None:
    told = mistakes(asyncio.run, check_set_up([Messy()], tmp_path))
    assert "messy gives something of node elsewhere, and works on host" in told
    assert "messy.again is not idempotent: once more it did it" in told
    assert "0-left is left when all is undone" in told


class Load(api.Workload):
    """Counts the lines that its command printed."""

    kind: ClassVar[str] = "load"
    unit: ClassVar[str] = "1"

    def declares(self) -> tuple[api.MetricSpec, ...]:
        return (api.MetricSpec("lines", "1"),)

    async def launch(self, place: api.RunContext) -> api.Launch:
        return api.Launch(("true",))

    def parse(self, raw: Path) -> api.Measurements:
        if not (raw / "stdout").exists():
            raise api.ParseError("is missing", str(raw / "stdout"))
        lines = self.lines((raw / "stdout").read_bytes())
        return api.Measurements(api.metric_frame([api.Value("lines", lines, self.unit)]))

    def lines(self, text: bytes) -> float:
        return text.count(b"\n")


def changing(self: Load, raw: Path) -> api.Measurements:
    measured = Load.parse(self, raw)
    with (raw / "stdout").open("ab") as file:
        file.write(b"\n")
    return measured


UNDECLARED = (api.MetricSpec("words", "ms"), api.MetricSpec("words", "1"), api.MetricSpec("p9", "s", weight="rows"))


@pytest.mark.parametrize(
    ("name", "body", "told"),
    [
        ("Careless", {"kind": "careless", "lines": lambda _, text: text.decode().count("\n")},
            ["parse() raises UnicodeDecodeError (stdout, damaged in way "]),
        ("Undeclared", {"kind": "undeclared", "declares": lambda _: UNDECLARED},
            ["gives lines, which it does not declare", "declares words in ms: base units are s, B, 1, 1/s, B/s",
             "declares words twice", "declares p9 by rows, which it does not declare"]),
        ("Milli", {"kind": "milli", "unit": "ms", "lines": lambda *_: float("nan")},
            ["gives lines as nan: what was not measured is left out",
             "gives lines with another unit, direction or way to combine than it declares"]),
        ("Changing", {"kind": "changing", "parse": changing},
            ["parses something else each time", "changes the raw files as it parses them"]),
        ("Nameless", {}, ["has no `kind: ClassVar[str]"]),
    ],
)  # fmt: skip
def test_a_mistake_of_a_workload_is_found(name: str, body: dict[str, Any], told: list[str], tmp_path: Path) -> None:
    (tmp_path / "stdout").write_bytes(b"a\nb\n")
    check_extension(Load, examples=[tmp_path])
    found = mistakes(check_extension, like(Load, name, **body), examples=[tmp_path])
    assert all(f"{name} {each}" in found for each in told), found


class Blind(api.Probe):
    """It watches what no node has, and sees nothing."""

    kind: ClassVar[str] = "blind"
    watches: ClassVar = frozenset({"printers"})  # type: ignore[arg-type]
    metrics: ClassVar = ()

    @asynccontextmanager
    async def watch(self, context: api.ProbeContext) -> AsyncIterator[None]:
        yield

    def parse(self, record: api.ProbeRecord) -> api.Measurements:
        return api.Measurements()


def test_mistakes_of_a_probe_and_of_a_node_kind_are_found(tmp_path: Path) -> None:
    (tmp_path / "seen").write_bytes(b"1\n")
    told = mistakes(
        check_extension, Blind, examples=[api.ProbeRecord(tmp_path, api.Window(0.0, 1.0), api.Subject(group="host"))]
    )
    assert "Blind watches {'printers'}, of which a node has only machine, disks" in told
    assert "Blind parses nothing out of" in told
    told = mistakes(check_extension, Lost)
    assert "Lost does not say whether its nodes are opened for the whole `session`" in told
    assert "Lost has the transports {'pigeon'}" in told
    assert "Lost takes less than no memory or time" in told
    assert "Lost has no launcher" in told


class Lost(api.NodeKind):
    """It does not say whether it is there for the session, and crosses by pigeon."""

    kind: Literal["lost"] = "lost"
    transports: ClassVar = frozenset({"pigeon"})  # type: ignore[arg-type]

    def memory_needed(self) -> int:
        return -1

    @classmethod
    def launcher(cls, services: api.Services) -> api.Launcher[Any]:
        return None  # type: ignore[return-value]


class Lines(api.Importer):
    """A trial for each line, which is a number of seconds."""

    kind: ClassVar[str] = "lines"
    raw_name: ClassVar[str] = "lines.txt"
    primary: ClassVar[tuple[str, ...]] = ("time",)
    unknown: ClassVar[str] = "what took so long"

    def read(self, text: bytes, source: str, options: Mapping[str, Any]) -> Sequence[api.Part]:
        try:
            numbers = [int(line) for line in text.decode().splitlines()]
        except ValueError:
            raise api.ParseError("is no list of numbers", source, 1) from None
        if not numbers or max(numbers) > 1 << 40:
            raise api.ParseError("has no numbers, or large ones", source, 1)
        return [self.part(number) for number in numbers]

    def part(self, number: int) -> api.Part:
        return api.Part(api.Measurements(api.metric_frame([api.Value("time", number, "s", "lower")])))


def naive(self: Lines, text: bytes, source: str, options: Mapping[str, Any]) -> Sequence[api.Part]:
    return [self.part(int(line)) for line in text.splitlines()]


def zero(_: Lines, number: int) -> api.Part:
    return api.Part(
        api.Measurements(api.metric_frame([api.Value("time", 0, "s")])),
        {"a": "\x00"} if number else {},
        status="failed",
    )


def anonymous(self: Lines, text: bytes, source: str, options: Mapping[str, Any]) -> Sequence[api.Part]:
    return Lines.read(self, text, "", options)


@pytest.mark.parametrize(
    ("name", "body", "told"),
    [
        ("Primary", {"primary": ("bandwidth",)}, ["begins reports with bandwidth, and gives none of these"]),
        ("Naive", {"read": naive}, ["read() raises ValueError (damaged in way ",
            "reads no trial, and does not raise ParseError"]),
        ("Zero", {"part": zero}, ["gives a trial that is failed without a reason, or with metrics",
            "gives a as '\\x00': a level is a word that can be printed", "gives trials with different factors"]),
        ("Anonymous", {"read": anonymous, "unknown": "Nothing."},
            ["raises a ParseError that does not name the file: is no list of numbers",
             "has an `unknown` that is empty or ends with a full stop"]),
    ],
)  # fmt: skip
def test_a_mistake_of_an_importer_is_found(name: str, body: dict[str, Any], told: list[str]) -> None:
    check_extension(Lines, examples=[b"1\n2\n"])
    found = mistakes(check_extension, like(Lines, name, kind=name.lower(), **body), examples=[b"0\n1\n2\n"])
    assert all(f"{name} {each}" in found for each in told), found
