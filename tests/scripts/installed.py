"""Storlab as a wheel, and installed from one in an environment that has nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [path for path in (ROOT / "src").rglob("*") if path.is_file()]


def build(kind: str, folder: Path, root: Path = ROOT, **environment: str) -> Path:
    """A ``wheel`` or ``sdist`` of the checkout, built as ``pip`` and ``uv`` do; cargo builds what is not current."""
    argv = [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", str(folder)]
    subprocess.run(argv, cwd=root, env=os.environ | environment, capture_output=True, text=True, check=True)
    (built,) = folder.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return built


def build_for(agent: Path, folder: Path, root: Path = ROOT) -> Path:
    """A wheel with an agent that is built already."""
    return build("wheel", folder, root, STORLAB_WHEEL_AGENT=str(agent))
