"""``manifest.json``: what was asked, planned and found, enough to report and to go on with a run years later."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from storlab.errors import RecordsError
from storlab.records.files import write_durably

if TYPE_CHECKING:
    from storlab.study.study import Study

NAME = "manifest.json"
LOCK = "lock"
"""Made first of all in a run's folder; held by the process that executes, resumes or cleans the run."""
FORMAT = 1


@dataclass(frozen=True)
class Manifest:
    """One run. ``inputs`` are the files that the study names (fio job files), by the name used there."""

    run: str
    title: str
    description: str
    study_file: str
    study_text: str
    overrides: tuple[str, ...]
    only: tuple[str, ...]
    inputs: dict[str, str]
    seed: int
    storlab: str
    argv: tuple[str, ...]
    started: str  # ISO 8601, UTC
    finished: str | None = None
    stopped: str = ""  # one sentence: why the run ended
    rounds: tuple[int, int] = (1, 1)  # at least, at most
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)  # name → facts
    plan: dict[str, Any] = field(default_factory=dict)
    platform_notes: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()  # sentences without which the numbers would be misread
    imported: dict[str, Any] = field(default_factory=dict)  # from what; see ``imported.py``. Empty: it was run
    format: int = FORMAT

    def study(self) -> Study:
        """The study as it was run. Raises ``RecordsError`` where there was none."""
        if self.imported:
            raise RecordsError(
                "the run was imported and has no study: `storlab report` shows it, nothing runs it again"
            )
        from storlab.study.study import parse_study  # a third of a second, which imported runs can do without

        return parse_study(
            self.study_text.encode(), self.study_file, self.inputs.__getitem__, self.overrides, self.only
        )

    def as_dict(self) -> dict[str, Any]:
        """As plain data, as reports read it."""
        return asdict(self)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write ``manifest.json`` durably."""
    write_durably(folder / NAME, orjson.dumps(asdict(manifest), option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS))


def read_manifest(folder: Path) -> Manifest:
    """Read it back. Raises ``RecordsError`` where the folder is no run, or of a newer Storlab."""
    path = folder / NAME
    try:
        fields = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        raise RecordsError(_no_run(folder)) from None
    except NotADirectoryError:
        raise RecordsError(f"{folder} is a file, not the folder of a run") from None
    except OSError as error:
        raise RecordsError(f"{path} can't be read: {error.strerror}") from None
    except orjson.JSONDecodeError as error:
        raise RecordsError(f"{path} can't be read: {error}") from None
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        raise RecordsError(f"{path} is not of format {FORMAT}: it comes from another version of Storlab")
    try:
        for name in ("overrides", "only", "argv", "rounds", "platform_notes"):
            fields[name] = tuple(fields[name])
        fields["cautions"] = tuple(fields.get("cautions", ()))  # since version 0.2
        return Manifest(**fields)
    except (TypeError, KeyError) as error:
        raise RecordsError(f"{path} is damaged: {error}") from None


def _no_run(folder: Path) -> str:
    if not folder.is_dir():
        return f"{folder} does not exist"
    if (folder / LOCK).exists():
        return (
            f"{folder} holds no run yet: `storlab run` was stopped there before it put anything up. "
            f"Nothing is lost; begin anew with `storlab run STUDY --out {folder}`"
        )
    return f"{folder} is not a run: it has no manifest.json"
