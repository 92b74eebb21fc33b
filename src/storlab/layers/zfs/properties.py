"""Properties of pools, datasets and volumes as studies give them and as ZFS prints them: zfsprops(7), zpoolprops(7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from storlab.layers.base import Layer
from storlab.text import number_or_text

Value = bool | int | str

PROPERTIES_HELP = "With ZFS's names and values; true and false are `on` and `off`."


def word(value: Value) -> str:
    """As ZFS writes it."""
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def arguments(option: str, properties: Mapping[str, Value]) -> list[str]:
    """``-o name=value`` for each."""
    return [part for name, value in properties.items() for part in (option, f"{name}={word(value)}")]


class PropertiesLayer(Layer):
    """What datasets and volumes have in common."""

    sync: Literal["standard", "always", "disabled"] | None = Field(
        None,
        description="`standard`: synchronous writes are synchronous. `disabled`: none are, and a crash loses them.",
    )
    logbias: Literal["latency", "throughput"] | None = Field(
        None, description="Where synchronous writes go first: to the intent log, or straight to their place."
    )
    primarycache: Literal["all", "metadata", "none"] | None = Field(None, description="What the ARC keeps of it.")
    compression: str | None = Field(None, description="`off`, `lz4`, `zstd-3` …")
    properties: dict[str, Value] = Field({}, description=f"Further properties. {PROPERTIES_HELP}")

    own: ClassVar[tuple[str, ...]] = ("sync", "logbias", "primarycache", "compression")
    """Properties that have a key of their own."""
    reserved: ClassVar[tuple[str, ...]] = ()
    """Properties that Storlab sets itself."""
    compared: ClassVar = (
        "set", "properties.recordsize", "properties.volblocksize", "properties.compression", "properties.checksum",
        "properties.sync", "properties.logbias", "properties.primarycache", "properties.secondarycache",
        "properties.dedup", "properties.copies", "properties.atime", "properties.xattr", "properties.direct",
        "properties.redundant_metadata", "properties.special_small_blocks",
    )  # fmt: skip

    @model_validator(mode="after")
    def _each_property_once(self) -> Self:
        for name in self.properties:
            if name in self.own:
                raise ValueError(f"properties: {name} has a key of its own: write it there")
            if name in self.reserved:
                raise ValueError(f"properties: {name} can't be given here: Storlab sets it")
        return self

    def options(self) -> dict[str, Value]:
        """All properties that the study gives."""
        keys: dict[str, Any] = {name: getattr(self, name) for name in self.own}
        return {name: value for name, value in keys.items() if value is not None} | self.properties


def parse_properties(text: str) -> dict[str, Any]:
    """``get -Hp -o property,value,source all``: property → value; numbers as integers, "-" (it has none) left out."""
    return {name: number_or_text(value) for name, value, _ in _rows(text) if value != "-"}


def parse_changed(text: str) -> list[str]:
    """Of the same output: what was set here, rather than being the default or inherited. Features always are."""
    return sorted(name for name, _, source in _rows(text) if source == "local" and not name.startswith("feature@"))


def _rows(text: str) -> list[tuple[str, str, str]]:
    rows = []
    for line in text.split("\n"):
        fields = line.split("\t")
        if len(fields) == 3 and fields[0]:
            rows.append((fields[0], fields[1], fields[2]))
    return rows
