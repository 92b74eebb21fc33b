"""What a test's own study wants beyond its scratch, as the options that allow it: the test trusts what it wrote."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from storlab.base.errors import StorlabError
from storlab.lab import read_lab
from storlab.records.run_folder import RunFolder
from storlab.run.permissions import Permissions
from storlab.run.planning.wants import wants_of
from storlab.study.machines import machines_text
from storlab.study.study import Study, load_study
from storlab.suites.records.folder import SUITE, read_suite_record
from storlab.suites.run.own_files import wants_of_files
from storlab.suites.run.wants import wants_of_run

_COMMANDS = ("run", "plan", "shell", "crash", "noise", "resume")


def trusting(study: Study, *, unconfined: bool = False) -> Permissions:
    """Everything that a study wants."""
    return Permissions(unconfined, frozenset(want.permission for want in wants_of(study, None)))


def allowing(words: Sequence[str], lab: str | None = None) -> list[str]:
    """The words of a command, with the options that allow whatever its study wants. One that can't be read is left."""
    if words[:1] == ["suite"]:
        return _allowing_suite([*words])
    if not words or words[0] not in _COMMANDS:
        return [*words]
    with contextlib.suppress(StorlabError, OSError, ValueError):
        permissions = _of_command(words, lab)
        options = [f"--allow={each}" for each in sorted(permissions.allowed)]
        return [words[0], *options, *["--unconfined"] * permissions.unconfined, *words[1:]]
    return [*words]


def _allowing_suite(words: list[str]) -> list[str]:
    """The same for what suite files and the folders of suite runs want."""
    folders = [Path(word.partition(":")[0]) for word in words[2:]]
    with contextlib.suppress(StorlabError, OSError, ValueError):
        options: list[str] = []
        for folder in folders if {"resume", "--replay"} & {*words} else []:
            if not (folder / SUITE).is_file():
                continue
            asked = read_suite_record(folder)
            names = [each.name for each in asked.runfiles if each.own] if "--replay" in words else []
            tests = None if asked.tests is None else Path(asked.tests)
            here = asked.here if words[1] == "resume" else None
            options += [f"--allow={each.permission}" for each in wants_of_run(names, tests, asked.kernel, here)]
            options += [f"--here={here.machine}"] if here is not None and "--here" not in words else []
        if words[1] in ("run", "list") and "--replay" not in words:
            options = [f"--allow={each.permission}" for each in wants_of_files(words[2:])]
        return [*words[:2], *options, *words[2:]]
    return words


def _of_command(words: Sequence[str], lab: str | None) -> Permissions:
    if words[0] == "resume":
        manifest = RunFolder.open(next(Path(word) for word in words[1:] if Path(word).is_dir())).manifest
        return trusting(manifest.study(), unconfined=manifest.unconfined and "--unconfined" not in words)
    lab = next(iter(_values("--lab", words)), lab)
    if of := _values("--of", words):
        return trusting(RunFolder.open(Path(of[0])).manifest.study())
    file = next((Path(word) for word in words[1:] if word.endswith(".toml") and Path(word).is_file()), None)
    if file is None:
        return Permissions()
    machines = (lambda: machines_text(read_lab(lab).machines)) if lab is not None else None
    return trusting(load_study(file, _values("--set", words), _values("--only", words), machines))


def _values(option: str, words: Sequence[str]) -> list[str]:
    """Of an option that may be repeated, as ``--set A=B`` and as ``--set=A=B``."""
    apart = [after for word, after in pairwise(words) if word == option]
    return apart + [word.removeprefix(f"{option}=") for word in words if word.startswith(f"{option}=")]
