"""Every text that a user writes has a type that says what it can do; what reaches beyond a run needs a word."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field
from tools.reach_reference import reference, study_models

from storlab.base.reach import Device, Found, OwnName, Program, ReadsFile, reaching, texts_of
from storlab.lab import LabFile
from storlab.model import Model
from storlab.registry import layer_types
from storlab.suites.expectations import ExpectationFile
from storlab.suites.suite_file import SuiteFile

MODELS = [*study_models(), ("suite file", SuiteFile), ("expectations", ExpectationFile), ("lab file", LabFile)]


@pytest.mark.parametrize(("where", "model"), MODELS, ids=[where for where, _ in MODELS])
def test_every_text_of_every_key_has_a_type_that_says_what_it_can_do(where: str, model: type[BaseModel]) -> None:
    assert [text.key for text in texts_of(model) if not text.reaches] == [], (
        f"{where}: take types of storlab.base.reach"
    )


PAGE = Path(__file__).parents[2] / "docs" / "reference" / "reach.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == reference(), "write it again: python -m tools.reach_reference > docs/reference/reach.md"


class Inner(Model):
    name: str
    ready: OwnName = ""


class Everything(Model):
    plain: str
    path: Annotated[str, Field(pattern="^/")]
    optional: str | None = None
    listed: tuple[str, ...] = ()
    table: dict[str, int] = Field({})
    values: dict[OwnName, list[str]] = Field({})
    either: int | Literal["x"] | str = 0
    inner: dict[OwnName, Inner] = Field({})
    anything: Any = None
    raw: bytes = b""
    sure: OwnName | None = None
    number: int = 0
    choice: Literal["a", "b"] = "a"


class Open(BaseModel):
    model_config = {"extra": "allow"}


def test_a_text_without_a_type_is_found_wherever_it_stands() -> None:
    missing = [text.key for text in texts_of(Everything) if not text.reaches]
    assert missing == [
        *("plain", "path", "optional", "listed", "table.NAME", "values.*", "either", "inner.*.name"),
        *("anything", "raw"),
    ]
    assert [text.key for text in texts_of(Open)] == ["*"]


class Wanting(Model):
    program: Program = "installed"
    disks: dict[Device, tuple[ReadsFile | int, ...]] = Field({})
    inner: tuple[Wanting, ...] = ()
    engine: OwnName = ""

    def reaches(self) -> Iterable[Found]:
        if self.engine.startswith("/"):
            yield Found(("engine",), "code", self.engine)


def test_what_a_value_reaches_is_found_wherever_it_stands_and_a_default_reaches_nothing() -> None:
    assert [*reaching(Wanting())] == [*reaching(Wanting(program="installed", engine="psync"))] == []
    deep = Wanting(disks={"/dev/x": ("/srv/a", 1, "/srv/b")}, inner=(Wanting(program="/opt/p", engine="/e.so"),))
    assert [*reaching(deep)] == [
        Found(("disks", "/dev/x"), "device", "/dev/x"),
        Found(("disks", "/dev/x", 0), "read", "/srv/a"),
        Found(("disks", "/dev/x", 2), "read", "/srv/b"),
        Found(("inner", 0, "program"), "code", "/opt/p"),
        Found(("inner", 0, "engine"), "code", "/e.so"),
    ]


@pytest.mark.parametrize(
    ("layer", "found"),
    [
        ({"layer": "directory"}, []),
        ({"layer": "directory", "path": "/srv"}, ["write=/srv"]),
        ({"layer": "file", "copy": "/etc/shadow"}, ["read=/etc/shadow"]),
        ({"layer": "device", "path": "/dev/x", "wipe": "/dev/x"}, ["device=/dev/x", "device=/dev/x"]),
        ({"layer": "image-clone", "base": {"file": "/srv/a.img"}}, ["read=/srv/a.img"]),
        ({"layer": "virtiofsd", "path": "/srv/fake"}, ["code=/srv/fake"]),
        ({"layer": "postgresql", "bindir": "/opt/pg/bin"}, ["code=/opt/pg/bin"]),
        ({"layer": "zpool", "module": {"spa_num_allocators": 1}}, ["kernel=spa_num_allocators"]),
        ({"layer": "pci", "address": "0000:03:00.0"}, ["device=0000:03:00.0"]),
    ],
)
def test_layers_reach_what_their_keys_name(layer: dict[str, Any], found: list[str]) -> None:
    read = layer_types()[layer["layer"]].model_validate(layer)
    assert [f"{each.word}={each.value}" for each in reaching(read)] == found
