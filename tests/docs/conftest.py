"""The package of examples/extensions, as an installer leaves it."""

import tomllib
from pathlib import Path

import pytest

from .pages import EXTENSIONS


@pytest.fixture
def installed(tmp_path: Path) -> tuple[Path, ...]:
    """Folders for Python's path on which the package stands as an installer leaves it."""
    project = tomllib.loads((EXTENSIONS / "pyproject.toml").read_text())["project"]
    metadata = tmp_path / "site" / f"storlab_examples-{project['version']}.dist-info"
    metadata.mkdir(parents=True)
    heading = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (metadata / "METADATA").write_text(heading)
    groups = project["entry-points"].items()
    lines = [line for group, names in groups for line in (f"[{group}]", *(f"{k} = {v}" for k, v in names.items()))]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return metadata.parent, EXTENSIONS
