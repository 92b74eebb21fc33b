"""What tests ran on, as far as it may decide their outcome: results are only alike where it is the same."""

from __future__ import annotations

from msgspec import Struct

from storlab.record import Count


class SuiteEnvironment(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The guests of a run, or whatever a console comes from: of that, nothing is known. ``modules``: name → version."""

    kernel: str = ""
    modules: dict[str, str] = {}
    image: str = ""
    cpus: Count = 0
    memory: Count = 0  # bytes
    accelerator: str = ""
    storlab: str = ""

    @property
    def parts(self) -> dict[str, str]:
        """By what results are grouped, in words; memory and Storlab's version are recorded only."""
        return {
            "kernel": self.kernel,
            "ZFS": self.modules.get("zfs", ""),
            "image": self.image,
            "CPUs": str(self.cpus) if self.cpus else "",
            "accelerator": self.accelerator,
        }

    def differences(self, other: SuiteEnvironment) -> str:
        """What is not as in another one, in words; empty where results of the two are alike."""
        pairs = ((name, value, other.parts[name]) for name, value in self.parts.items())
        return ", ".join(
            f"{name} {here or 'none'} and not {there or 'none'}" for name, here, there in pairs if here != there
        )

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(self.parts.values())

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.parts.items() if value) or "environment not recorded"
