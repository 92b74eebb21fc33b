"""What a study may ask of the network among its nodes, ``[network]``, and of their TCP, ``[nodes.NAME.tcp]``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, Strict, WithJsonSchema, model_validator

from storlab.base.reach import KERNEL_SETTING, Choice, Found, Reach
from storlab.base.units import Duration, Size, parse_share, shown
from storlab.model import Model
from storlab.nodes.needs import Needs

_BANDWIDTH = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmg]?)(?:bit|bps)(?:/s)?\s*", re.IGNORECASE)
_POWER = {"": 0, "k": 1, "m": 2, "g": 3}
_SLOWEST, _FASTEST = 8_000, 10**12  # bit/s
_LONGEST = 60.0  # s
UNLIMITED = "unlimited"


def parse_bandwidth(value: object) -> int | None:
    """``"100Mbit"`` → 100,000,000 bit/s, powers of 1000 as tc(8) has them; ``None`` for ``"unlimited"``.

    Raises ``ValueError`` that names what would be right.
    """
    if value is None or value == UNLIMITED:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        bits = float(value)
    else:
        match = _BANDWIDTH.fullmatch(value) if isinstance(value, str) and value.isascii() and len(value) < 64 else None
        if match is None:
            raise ValueError(
                f'{shown(value)} is not a bandwidth: write bits per second, such as "100Mbit" or "1Gbit", or '
                f'"{UNLIMITED}"'
            )
        bits = float(match[1]) * 1000 ** _POWER[match[2].lower()]
    if not _SLOWEST <= bits <= _FASTEST:
        raise ValueError(f'{shown(value)} is not a bandwidth from "8kbit" to "1000Gbit"')
    return round(bits)


def parse_loss(value: object) -> float:
    """``"0.1%"`` → 0.001; nothing at all may get lost, too."""
    none = re.fullmatch(r"\s*0+(\.0+)?\s*%\s*", value) if isinstance(value, str) else value == 0 and value is not False
    return 0.0 if none else parse_share(value)


def _short(value: float | None) -> float | None:
    if value is not None and value > _LONGEST:
        raise ValueError(f"no network takes longer than {_LONGEST:g} s each way: write a shorter delay")
    return value


def _pattern(pattern: str, example: str, *others: str) -> WithJsonSchema:
    kinds: list[dict[str, Any]] = [{"type": "string", "pattern": pattern}, *({"type": other} for other in others)]
    return WithJsonSchema({"anyOf": kinds, "examples": [example]})


Bandwidth = Annotated[
    int | None,
    BeforeValidator(parse_bandwidth),
    _pattern(r"^\s*(\d+(\.\d+)?\s*[kmgKMG]?([bB][iI][tT]|[bB][pP][sS])(/s)?|unlimited)\s*$", "100Mbit", "integer"),
]
Loss = Annotated[float, BeforeValidator(parse_loss), _pattern(r"^\s*\d+(\.\d+)?\s*%\s*$", "5%", "number")]
Switch = Annotated[bool, Strict()]
Whole = Annotated[int, Strict()]


FORWARDING = "forwarding"
"""The setting of this machine's kernel that a way out changes."""


class Network(Model):
    """The network among the nodes: each node's own card does what is written here with all that it sends."""

    beyond: ClassVar[Mapping[str, Reach]] = {"uplink": KERNEL_SETTING}

    bandwidth: Bandwidth = Field(
        None, description='Outgoing bandwidth of each node\'s card: "100Mbit"; by default `unlimited`.'
    )
    delay: Duration | None = Field(None, description="Each way: a round trip takes twice as long.")
    jitter: Duration | None = Field(
        None, description="How much the delay varies, up and down; packets may then overtake each other."
    )
    loss: Loss | None = Field(None, description="Share of packets that get lost, each way, at random.")
    mtu: Whole | None = Field(None, ge=576, le=65521, description="Largest packet, bytes: of cards, taps and bridge.")
    offload: Switch | None = Field(
        None,
        description="Whether cards segment and merge (TSO, GSO, GRO). By default as they have it; off where `loss` is "
        "given, as each loss would otherwise drop up to 64 KB.",
    )

    uplink: Switch = Field(
        False,
        description="Give the network of guests and namespaces a way out through this machine, by NAT, to the machines "
        "that serve them, and to nothing else.",
    )

    @model_validator(mode="after")
    def _possible(self) -> Self:
        _short(self.delay)
        if self.jitter and not self.delay:
            raise ValueError("jitter varies the delay: write delay, too")
        if self.jitter and self.delay and self.jitter > self.delay:
            raise ValueError(f"jitter = {self.jitter:g} s is more than delay = {self.delay:g} s: no packet comes early")
        return self

    def reaches(self) -> Iterator[Found]:
        """The way out: this machine then forwards what it did not."""
        if self.uplink:
            yield Found(("uplink",), "kernel", FORWARDING)

    @property
    def shapes(self) -> bool:
        return bool(self.model_fields_set - {"uplink"})

    @property
    def segmentation(self) -> bool | None:
        """Whether cards are to segment and merge; ``None``: as they are. A loss, also one of 0, means packets."""
        return False if self.offload is None and self.loss is not None else self.offload

    @property
    def emulated(self) -> bool:
        """Whether it takes netem: a delay or a loss."""
        return bool(self.delay or self.loss)

    def needs(self) -> Needs:
        if not self.shapes:
            return Needs()
        queues = [name for name, wanted in (("netem", self.emulated), ("tbf", self.bandwidth)) if wanted]
        programs = ["ip", *(["tc"] if queues else []), *(["ethtool"] if self.segmentation is not None else [])]
        return Needs(programs=tuple(programs), queues=tuple(queues), root="the shape of the network")

    def cautions(self) -> Iterator[str]:
        if self.loss and self.segmentation:
            yield "network: with offload = true, each loss takes up to 64 KB at once, and not one packet"


_BUFFERS = {"receive_buffer": "rmem", "send_buffer": "wmem"}
TCP_SYSCTLS = (
    *("congestion_control", "sack", "dsack", "recovery", "timestamps", "window_scaling", "ecn"),
    *("slow_start_after_idle", "autocorking", "rmem", "wmem"),
)
"""Those that keys set, by their names after ``tcp_``, see Documentation/networking/ip-sysctl.rst of the kernel."""


class Tcp(Model):
    """TCP's settings of each of these nodes, by the kernel's names; by default as the kernel has them."""

    beyond: ClassVar[Mapping[str, Reach]] = {"*": KERNEL_SETTING}

    sack: Switch | None = Field(None, description="Selective acknowledgements.")
    dsack: Switch | None = Field(None, description="Whether duplicates are acknowledged by SACK.")
    recovery: Whole | None = Field(
        None,
        ge=0,
        le=7,
        description="How loss is found (RACK), a sum: 1 on, 2 a static window for reordering, 4 no threshold of "
        "duplicate ACKs. It is what replaced FACK.",
    )
    congestion_control: Annotated[Choice, Field(pattern=r"^[a-z][a-z0-9_-]{0,14}$")] | None = Field(
        None, description="The algorithm: `cubic`, `reno`, `bbr` …"
    )
    timestamps: Switch | None = Field(None, description="Timestamps in each segment: 12 bytes less for data.")
    window_scaling: Switch | None = Field(None, description="Windows above 64 KiB.")
    ecn: Literal[0, 1, 2] | None = Field(None, description="Explicit congestion notification: 0 off, 1 on, 2 if asked.")
    slow_start_after_idle: Switch | None = Field(None, description="Start slowly again after a pause.")
    autocorking: Switch | None = Field(None, description="Hold back small segments while others are on their way.")
    receive_buffer: Size | None = Field(None, ge=4096, description="Most that a receive buffer grows to.")
    send_buffer: Size | None = Field(None, ge=4608, description="Most that a send buffer grows to.")

    @model_validator(mode="before")
    @classmethod
    def _without_fack(cls, value: Any) -> Any:
        if isinstance(value, dict) and "fack" in value:
            raise ValueError(
                "fack: Linux has no FACK since 4.15, and its sysctl does nothing; RACK took its place: write recovery, "
                "such as recovery = 1, or 0 to go without"
            )
        return value

    def reaches(self) -> Iterator[Found]:
        for key in type(self).model_fields:
            if getattr(self, key) is not None:
                yield Found((key,), "kernel", f"tcp_{_BUFFERS.get(key, key)}")

    def sysctls(self) -> dict[str, str]:
        """What is asked for, by the name after ``tcp_``. Of buffers, it is the last of three values."""
        found: dict[str, str] = {}
        for key in type(self).model_fields:
            value = getattr(self, key)
            if value is not None:
                found[_BUFFERS.get(key, key)] = str(int(value)) if not isinstance(value, str) else value
        return found
