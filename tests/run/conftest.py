"""Every test of a run here, however it ends, leaves nothing of it on the machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from laboratory import Laboratory, wait_until
from laboratory.hosts import Host, Hosts, hosts


@pytest.fixture
def lab(lab: Laboratory) -> Iterator[Laboratory]:
    """Storlab in an empty folder, of whose runs nothing may be left."""
    yield lab
    assert lab.leftovers() == []


@pytest.fixture
def machines(lab: Laboratory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    """Two of them; nothing may be left on them, either."""
    with hosts(lab.folder / "hosts", 2, [lab.scratch]) as made:
        lab.environment |= made.environment
        monkeypatch.setenv("STORLAB_SSH_CONFIG", str(made.config))
        yield made
        for name, host in made.hosts.items():
            if host.holder is not None:
                assert wait_until(lambda host=host: not host.processes(), 30), (name, host.processes())  # type: ignore[misc]
                assert (host.mounts(), _files(lab, host)) == ([], []), name


def _files(lab: Laboratory, host: Host) -> list[str]:
    """What is in the scratch folder on a host."""
    return host.run("ls", "-A", str(lab.scratch)).split()
