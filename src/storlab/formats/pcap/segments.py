"""Segments of TCP as columns, whatever form of capture they were in, and who the addresses and ports in them are."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
FIN, SYN, RST, ACK = 1, 2, 4, 16
_MOST_ADDRESSES = 65535
UNKNOWN = 65535
"""Instead of an address's number, where there were too many of them."""


@dataclass(frozen=True)
class Segments:
    """One element a segment, in the order of the capture. ``times`` in ns; ``lengths``: bytes of data, by the headers.

    ``flows``: both ends, the sender first: the numbers of the two addresses, then the two ports, 16 bits each.
    ``mss``: of the option, else 0. ``stamped``: whether it has the option of timestamps. ``sacks``: blocks of the
    option SACK; ``dsack``: whether the first of them says again what was acknowledged. ``sequence``: -1 where unknown.
    """

    times: Ints
    flows: npt.NDArray[np.uint64]
    sequence: Ints
    acknowledged: Ints
    lengths: Ints
    flags: Ints
    window: Ints
    mss: Ints
    stamped: npt.NDArray[np.bool_]
    sacks: Ints
    dsack: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.times)


@dataclass
class Addresses:
    """Addresses, or names of machines, by numbers of 16 bits. ``too_many``: packets of those that had no number."""

    numbers: dict[bytes | str, int] = field(default_factory=dict)
    known: list[bytes | str] = field(default_factory=list)
    too_many: int = 0

    def number(self, address: bytes | str) -> int:
        """Its own; ``UNKNOWN`` for all that are too many."""
        found = self.numbers.get(address)
        if found is None:
            if len(self.numbers) >= _MOST_ADDRESSES:
                return UNKNOWN
            found = self.numbers[address] = len(self.known)
            self.known.append(address)
        return found

    def name(self, number: int) -> str:
        """As people write it."""
        address = self.known[number]
        return address if isinstance(address, str) else str(ip_address(address))


def flow(source: int, destination: int, ports: tuple[int, int]) -> int:
    """One of ``Segments.flows``."""
    return source << 48 | destination << 32 | ports[0] << 16 | ports[1]


def endpoint(addresses: Addresses, address: int, port: int) -> str:
    """``10.0.0.1:2049``, ``[fe80::1]:2049``, ``client.nfs``."""
    name = addresses.name(address)
    return name if not port else f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
