"""What a run's guests are, or this machine is, for its records: kernel, modules, image, how they are run."""

from __future__ import annotations

from pathlib import Path

from storlab.record import to_json
from storlab.records.files import write_durably
from storlab.records.manifest import node_facts
from storlab.suites.environment import SuiteEnvironment
from storlab.suites.places.place import Place, SuiteGuest
from storlab.suites.records import ENVIRONMENT
from storlab.version import __version__

_VERSIONS = 'for m; do v=/sys/module/$m/version; if [ -r "$v" ]; then echo "$m $(cat "$v")"; fi; done'


async def environment_of(guest: SuiteGuest, place: Place) -> SuiteEnvironment:
    facts = node_facts("vm", await guest.node.facts({}))
    booted = await place.booted()
    modules = place.adapter.needs().modules
    ended = await guest.node.run(["sh", "-c", _VERSIONS, "sh", *modules])
    lines = (line.partition(" ") for line in ended.stdout.decode(errors="replace").splitlines())
    return SuiteEnvironment(
        kernel=facts.kernel.release if facts.kernel else "",
        modules={name: version for name, _, version in lines},
        image=booted.image,
        cpus=facts.cpus.online if facts.cpus else 0,
        memory=booted.memory,
        accelerator=booted.accelerator,
        storlab=__version__,
    )


async def record_difference(guest: SuiteGuest, place: Place, known: SuiteEnvironment | None, folder: Path) -> str:
    """In what a further guest differs from a run's first, in words; if so, what it is goes into its ``folder``.

    An image, kernel or module that is replaced while a run waits to be resumed is how that comes about.
    """
    if known is None:
        return ""
    found = await environment_of(guest, place)
    if differs := found.differences(known):
        write_durably(folder / ENVIRONMENT, to_json(found))
    return differs
