"""The initial RAM disk of guests: the image's modules, and the agent as the guest's first process.

The agent is not part of any image, but handed over at boot, so that it always is the one that this controller speaks
with. The kernel reads several cpio archives one after the other (Documentation/driver-api/early-userspace).
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from storlab.images.cache import storlab_cache
from storlab.images.cpio import archive
from storlab.images.image import Image
from storlab.nodes.agent_binary import agent_path

_KEPT = 8  # pairs of an image and an agent; the ones not used for longest give way


def initrd_with_agent(image: Image) -> Path:
    """A file with the image's modules and this checkout's agent as ``/init``; made once for each pair."""
    agent = agent_path()
    folder = storlab_cache() / "initrd"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{_fingerprint(image.initramfs, agent)}.cpio"
    if not path.exists():
        own = archive({"init": agent.read_bytes()}, frozenset({"init"}), ("dev", "proc", "sys"))
        temporary = path.with_name(f"{path.name}.{os.getpid()}")
        temporary.write_bytes(image.initramfs.read_bytes() + own)
        temporary.replace(path)
        for old in sorted(folder.glob("*.cpio"), key=lambda path: -path.stat().st_mtime)[_KEPT:]:
            old.unlink(missing_ok=True)
    os.utime(path)
    return path


def _fingerprint(*files: Path) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]
