"""The commands that repeat a run: as it was started, and as it can be started again with the same order."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from storlab.report.escape import one_line


def commands(manifest: Mapping[str, Any]) -> list[str]:
    """Shell lines, each of one line; empty where the manifest doesn't say how the run was started."""
    argv = [str(word) for word in manifest.get("argv") or ()]
    if argv and PurePath(argv[0]).name == "storlab":
        argv[0] = "storlab"  # wherever it was installed
    study, seed = manifest.get("study_file"), manifest.get("seed")
    lines = []
    if argv:
        lines.append(shlex.join(argv))
    if study and seed is not None and "--seed" not in argv:
        again = argv if argv[1:2] == ["run"] else ["storlab", "run", str(study)]
        lines.append(shlex.join([*again, "--seed", str(seed)]))
    return [one_line(line) for line in lines]
