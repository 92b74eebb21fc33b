"""The initial RAM disk of guests: the image's modules, and the agent as the guest's first process.

The agent is not part of any image, but handed over at boot, so that it always is the one that this controller speaks
with. The kernel reads several cpio archives one after the other (Documentation/driver-api/early-userspace).
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from storlab.errors import MissingTool, StorlabError
from storlab.images.cache import storlab_cache
from storlab.images.image import Image
from storlab.nodes.agent_binary import agent_path

_KEPT = 8  # pairs of an image and an agent; the ones not used for longest give way
_ALIGNMENT = 512  # archives that follow one another begin at a multiple of 4; this is cpio's own block


async def initrd_with_agent(image: Image) -> Path:
    """A file with the image's modules and this checkout's agent as ``/init``; made once for each pair."""
    agent = agent_path()
    folder = storlab_cache() / "initrd"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{_fingerprint(image.initramfs, agent)}.cpio"
    if not path.exists():
        archive = await _archive(agent)
        temporary = path.with_name(f"{path.name}.{os.getpid()}")
        temporary.write_bytes(_padded(image.initramfs.read_bytes()) + archive)
        temporary.replace(path)
        _forget_oldest(folder)
    os.utime(path)
    return path


def _forget_oldest(folder: Path) -> None:
    for path in sorted(folder.glob("*.cpio"), key=lambda path: -path.stat().st_mtime)[_KEPT:]:
        path.unlink(missing_ok=True)


def _fingerprint(*files: Path) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


async def _archive(agent: Path) -> bytes:
    if shutil.which("cpio") is None:
        raise MissingTool("cpio is not installed, and guests get the agent by it: apt-get install cpio")
    with tempfile.TemporaryDirectory(prefix="storlab-init-") as root:
        for folder in ("dev", "proc", "sys"):
            (Path(root) / folder).mkdir()
        shutil.copyfile(agent, Path(root) / "init")
        (Path(root) / "init").chmod(0o755)
        cpio = await asyncio.create_subprocess_exec(
            *("cpio", "--create", "--format=newc", "--quiet", "--owner=0:0", "--reproducible"),
            cwd=root,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        archive, errors = await cpio.communicate(b".\ndev\nproc\nsys\ninit\n")
    if cpio.returncode != 0:
        raise StorlabError(f"cpio could not pack the agent: {errors.decode(errors='replace').strip()}")
    return archive


def _padded(archive: bytes) -> bytes:
    return archive + bytes(-len(archive) % _ALIGNMENT)
