"""Properties of pools, datasets and volumes as studies give them and as ZFS prints them: zfsprops(7), zpoolprops(7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from storlab.allowed import NotAllowed, allowed
from storlab.layers.base import Below, Gives, Layer
from storlab.reach import Choice, options_of
from storlab.text import number_or_text

Property = Annotated[str, options_of("ZFS")]
Value = bool | int | Annotated[str, options_of("ZFS")]

PROPERTIES_HELP = "[Those that are listed](options.md), with ZFS's values; true and false are `on` and `off`."


def word(value: Value) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def arguments(option: str, properties: Mapping[str, Value]) -> list[str]:
    return [part for name, value in properties.items() for part in (option, f"{name}={word(value)}")]


def refuse_unlisted(part: str, given: Mapping[str, Value], *key: str) -> None:
    options = ((name, value if part == "module" else word(value)) for name, value in given.items())
    if (found := allowed("zfs", part).first_problem(options)) is not None:
        raise NotAllowed(found[1], *key, found[0])


class PropertiesLayer(Layer[Below, Gives]):
    """What datasets and volumes have in common."""

    sync: Literal["standard", "always", "disabled"] | None = Field(
        None,
        description="`standard`: synchronous writes are synchronous. `disabled`: none are, and a crash loses them.",
    )
    logbias: Literal["latency", "throughput"] | None = Field(
        None, description="Where synchronous writes go first: to the intent log, or straight to their place."
    )
    primarycache: Literal["all", "metadata", "none"] | None = Field(None, description="What the ARC keeps of it.")
    compression: Choice | None = Field(None, description="`off`, `lz4`, `zstd-3` …")
    properties: dict[Property, Value] = Field({}, description=f"Further properties. {PROPERTIES_HELP}")

    own: ClassVar[tuple[str, ...]] = ("sync", "logbias", "primarycache", "compression")
    """Properties that have a key of their own."""
    compared: ClassVar = (
        "sources.*",
        "properties.recordsize", "properties.volblocksize", "properties.compression", "properties.checksum",
        "properties.sync", "properties.logbias", "properties.primarycache", "properties.secondarycache",
        "properties.dedup", "properties.copies", "properties.atime", "properties.xattr", "properties.direct",
        "properties.redundant_metadata", "properties.special_small_blocks",
    )  # fmt: skip

    @model_validator(mode="after")
    def _each_property_once(self) -> Self:
        for name in self.properties:
            if name in self.own:
                raise ValueError(f"properties: {name} has a key of its own: write it there")
        refuse_unlisted("dataset", self.properties, "properties")
        if self.compression is not None:
            refuse_unlisted("dataset", {"compression": self.compression})
        return self

    def options(self) -> dict[str, Value]:
        keys: dict[str, Any] = {name: getattr(self, name) for name in self.own}
        return {name: value for name, value in keys.items() if value is not None} | self.properties


def parse_properties(text: str) -> dict[str, dict[str, Any]]:
    """``get -Hp -o property,value,source all``, as facts: ``properties`` and their ``sources``.

    Numbers as integers; what has no value ("-") is left out of ``properties``. A source is ``-``, ``default``,
    ``local``, or ``inherited``, in place of ``inherited from`` a pool whose name is another in each trial.
    """
    rows = [fields for line in text.split("\n") if len(fields := line.split("\t")) == 3 and fields[0]]
    values = {name: number_or_text(value) for name, value, _ in rows if value != "-"}
    return {"properties": values, "sources": {name: source.partition(" from ")[0] for name, _, source in rows}}
