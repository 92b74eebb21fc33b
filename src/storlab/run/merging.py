"""Rounds of one run that several machines do: assignments, and runs that are merged.

The order of a round follows from the run's seed and the round's number, and so do the numbers of its trials. So an
assignment needs nothing of the others: the study, the seed and two numbers are all that a queue has to carry, and what
comes back are trials that belong nowhere else. There is no stopping rule inside, since what it would look at is only a
part of the evidence, and cells that rest do so because of what the run knew when its rounds were assigned.

What is merged is a union of folders. A round is taken whole and from one run: what is compared within it was then
measured on one machine. Whatever else has a part in the numbers must be the same for all: the study, the seed, Storlab,
the kernel and the processors. Merging again changes nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from msgspec.structs import replace

from storlab.base.amounts import numbered
from storlab.base.errors import RecordsError, UserError
from storlab.base.text import grouped
from storlab.findings.runs import MergedRuns
from storlab.records.files import copy_durably, sync_folder
from storlab.records.held import new_run_folder
from storlab.records.manifest import NAME, Manifest, Planned, Rest, write_manifest
from storlab.records.run_folder import RECORD, Host, RunFolder, TrialRecord, set_aside
from storlab.records.tables import host_names
from storlab.run.beginning import new_run_id, now
from storlab.run.limits import AS_PLANNED, Assignment, Extent
from storlab.run.planning.design import rule_of
from storlab.run.planning.horizon import horizon_of
from storlab.run.planning.order import due
from storlab.run.planning.plan import Plan
from storlab.study.study import Study


def assigned_of(own: Manifest, to: Assignment | None, rounds: tuple[int, int], study: Study) -> Manifest:
    """That of a run with nothing but the rounds assigned ``to`` it. ``rounds``: those of the whole, least and most."""
    if to is None:
        return own
    own = replace(own, assigned=(to.first, to.last), rests=to.rests, rest_from=None)
    return replace(own, rounds=rounds, horizon=horizon_of(study, rounds))


def assignment_of(manifest: Manifest, extent: Extent) -> Assignment | None:
    """What a run was assigned; ``None`` where it is a whole one. Raises ``UserError`` if more is asked of it."""
    if manifest.assigned is None:
        return None
    first, last = manifest.assigned
    if extent != AS_PLANNED:
        raise UserError(
            f"this run is an assignment, rounds {first} to {last} of another: more rounds are another assignment, or "
            "are added to what `storlab merge` makes of all"
        )
    return Assignment(first, last, manifest.rests, manifest.order)


def refuse_unassignable(study: Study) -> None:
    """Raise ``UserError`` if rounds are about each other, so that one machine must do all."""
    if study.model.repeat.until == "steady":
        raise UserError(
            f"{study.file} waits for steady state, which a device reaches over the rounds that wear it: they can't be "
            "divided among machines"
        )


def difference_from(manifest: Manifest, study: Study) -> str:
    """In what a study, as its file is now, differs from that of a run: a clause, or empty."""
    if study.text != manifest.study_text:
        return "its text differs"
    known = dict(study.inputs)
    if changed := [name for name in {**manifest.inputs, **known} if manifest.inputs.get(name) != known.get(name)]:
        return f"{changed[0]}, which it names, differs"
    return ""


def set_aside_begun_elsewhere(
    run: RunFolder, plan: Plan, records: Sequence[TrialRecord], here: Host, notify: Callable[[str], None]
) -> bool:
    """Whether rounds were begun on another machine and not ended: they are done here, whole.

    What is compared within a round was measured on one machine; that is all that pairs rest on.
    """
    of_rounds = grouped((record.round, record) for record in records)
    unsupported = {*plan.unsupported, *(record.cell for record in records if record.status == "unsupported")}
    found = False
    for number, those in of_rounds.items():
        elsewhere = sorted({record.hosts[0].name for record in those if record.hosts and record.hosts[0] != here})
        order = due(plan.order(number), run.manifest.rests)
        wanted = {each.number for each in order if each.cell not in unsupported}
        if not elsewhere or wanted <= {record.trial for record in those}:
            continue
        found = True
        notify(f"Round {number} was begun on {', '.join(elsewhere)} and not ended: it is done here, whole.")
        for record in those:
            set_aside(run.trial_folder(record.trial))
    return found


@dataclass(frozen=True)
class Part:
    """A run that is merged, as it was found."""

    run: RunFolder
    manifest: Manifest
    records: tuple[TrialRecord, ...]

    @classmethod
    def of(cls, folder: Path) -> Part:
        """Raises ``RecordsError`` where it is no run of a study, or its trials can't be those of its rounds."""
        run = RunFolder.open(folder)
        manifest = run.manifest
        if manifest.imported is not None or manifest.suite:
            manifest.study()  # which says why there is none
        cells = len(manifest.plan.cells) if manifest.plan else 0
        records = tuple(run.records())
        for record in records:
            if not (record.round - 1) * cells < record.trial <= record.round * cells or record.cell > cells:
                path = run.trial_folder(record.trial) / RECORD
                raise RecordsError(
                    f"{path} is damaged: a run of {cells} cells has no such trial in round {record.round}"
                )
        return cls(run, manifest, records)

    @property
    def hosts(self) -> list[Host]:
        return list(dict.fromkeys(host for record in self.records for host in record.hosts))

    @property
    def called(self) -> str:
        """``parts/2, done on lab2``."""
        names = ", ".join(host_names(self.hosts).values())
        return f"{self.run.path}, done on {names}," if names else f"{self.run.path}"

    @cached_property
    def rounds(self) -> dict[int, list[TrialRecord]]:
        return grouped((record.round, record) for record in self.records)

    @cached_property
    def whole(self) -> frozenset[int]:
        """The rounds in which all that was due there has ended, on one and the same machines."""
        assert self.manifest.plan is not None
        unsupported = {record.cell for record in self.records if record.status == "unsupported"}
        unsupported |= {cell.cell for cell in self.manifest.plan.cells if cell.unsupported}
        after = {rest.cell: rest.after for rest in self.manifest.rests}
        able = [cell.cell for cell in self.manifest.plan.cells if cell.cell not in unsupported]
        return frozenset(
            number
            for number, those in self.rounds.items()
            if {cell for cell in able if number <= after.get(cell, number)} <= {record.cell for record in those}
            and len({tuple(record.hosts) for record in those if record.status == "done"}) <= 1
        )


@dataclass(frozen=True)
class Merged:
    """What came of it. ``hosts``: the rounds of each machine, by its name. ``missing``: rounds that no run has."""

    run: RunFolder
    added: tuple[int, ...]
    missing: tuple[int, ...]
    hosts: Mapping[str, tuple[int, ...]]
    left_out: tuple[str, ...]  # clauses about rounds that were begun and not ended, or done again


def merge_runs(folders: Sequence[Path], out: Path) -> Merged:
    """Bring the rounds of ``folders`` together in ``out``: a new folder, or a run of the same plan that gets the rest.

    Raises ``UserError`` where they are no parts of one run, ``RecordsError`` if one is damaged.
    """
    into = Part.of(out) if (out / NAME).exists() else None
    parts = [Part.of(folder) for folder in folders if folder.resolve() != out.resolve()]
    every = [*([into] if into else []), *parts]
    if not every:
        raise UserError("name the runs that are to be merged")
    for part in every[1:]:
        _refuse_other(every[0], part)
    measured = [part for part in every if part.records]
    for part in measured[1:]:
        _refuse_unlike(measured[0], part)
    rests = _rests(every)
    chosen = _chosen(every, into)
    study = every[0].manifest.study()
    with _opened(out, into) as run:
        added = _copy(run, chosen, into)
        present = sorted(chosen)
        least, most = every[0].manifest.rounds
        rounds = least, max([most, *present])
        if into is None or added:
            write_manifest(run.path, _manifest(every, measured, rounds, present, rests, study))
    known = host_names(host for part in every for host in part.hosts)
    of_hosts = grouped(
        (" and ".join(known[host] for host in part.rounds[number][0].hosts) or "an unknown machine", number)
        for number, part in sorted(chosen.items())
    )
    twice = [
        f"{part.called} has {numbered('round', more)} as well, which {'is' if len(more) == 1 else 'are'} left out"
        for part in every
        if (more := sorted(n for n in part.whole if chosen[n] is not part and not _same(chosen[n], part, n)))
    ]
    left = [
        f"{part.called} has begun {numbered('round', open_)} and not ended {'it' if len(open_) == 1 else 'them'}"
        for part in every
        if (open_ := sorted(part.rounds.keys() - part.whole - chosen.keys()))
    ]
    missing = tuple(number for number in range(1, max([rounds[0], *present]) + 1) if number not in chosen)
    return Merged(run, tuple(added), missing, {name: tuple(those) for name, those in of_hosts.items()}, (*left, *twice))


@contextmanager
def _opened(out: Path, into: Part | None) -> Iterator[RunFolder]:
    if into is None:
        with new_run_folder(out) as holding:
            yield holding.named
    else:
        with into.run.lock():
            yield into.run


_OF_THE_RUN = {
    "study": "study_text",
    "files that the study names": "inputs",
    "--set": "overrides",
    "--only": "only",
    "seed": "seed",
    "order of rounds": "order",
    "version of Storlab": "storlab",
    "--unconfined": "unconfined",
    "--allow": "allowed",
}
_LONG = ("study_text", "inputs")


def _refuse_other(first: Part, other: Part) -> None:
    for what, field in _OF_THE_RUN.items():
        mine, its = getattr(other.manifest, field), getattr(first.manifest, field)
        if mine == its:
            continue
        values = "another one" if field in _LONG else f"{_said(mine)}, and not {_said(its)}"
        raise UserError(
            f"{other.called} is no part of the same run as {first.run.path}: its {what} is {values}. "
            "`storlab compare` shows them side by side"
        )


def _said(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value)) or "not given"
    return {True: "given", False: "not given"}[value] if isinstance(value, bool) else str(value)


def _refuse_unlike(first: Part, other: Part) -> None:
    """Raise ``UserError`` if machines are not of one kind: their rounds would say nothing together."""
    if other.manifest.emulated != first.manifest.emulated:
        one, rest = (other, first) if other.manifest.emulated else (first, other)
        raise UserError(
            f"{one.called} emulated its virtual machines, and {rest.called} did not: their rounds are not merged"
        )
    for name, facts in other.manifest.nodes.items():
        known = first.manifest.nodes.get(name)
        if known is None:
            continue
        told = {
            "kernel": (facts.kernel and facts.kernel.release, known.kernel and known.kernel.release),
            "architecture": (facts.kernel and facts.kernel.machine, known.kernel and known.kernel.machine),
            "CPU model": (facts.cpus and facts.cpus.model, known.cpus and known.cpus.model),
        }
        for what, (mine, its) in told.items():
            if mine != its:
                raise UserError(
                    f"{other.called} had the {what} {mine or 'unknown'} on {name}, and {first.called} had "
                    f"{its or 'unknown'}: rounds of machines that differ are not merged. Merge those of each kind by "
                    "themselves; `storlab compare --by FACTOR` then shows each machine"
                )


def _rests(parts: Sequence[Part]) -> tuple[Rest, ...]:
    found: dict[int, tuple[Rest, Part]] = {}
    for part in parts:
        for rest in part.manifest.rests:
            known, of = found.setdefault(rest.cell, (rest, part))
            if known.after != rest.after:
                raise UserError(
                    f"cell {rest.cell} rests after round {known.after} in {of.run.path}, and after round {rest.after} "
                    f"in {part.run.path}: they are no parts of one run"
                )
    return tuple(rest for rest, _ in found.values())


def _chosen(parts: Sequence[Part], into: Part | None) -> dict[int, Part]:
    """From which run each round is taken. Raises ``UserError`` where it was done twice, and nothing says which counts.

    What has been merged stays. An assignment that was killed and done again counts as it was done again. Neither
    depends on what the rounds say.
    """
    chosen: dict[int, Part] = {}
    for part in parts:
        for number in part.whole:
            other = chosen.get(number)
            if other is None or other is into or _same(other, part, number):
                chosen.setdefault(number, part)
            elif (other.manifest.finished is None) != (part.manifest.finished is None):
                chosen[number] = part if other.manifest.finished is None else other
            else:
                raise UserError(
                    f"round {number} was done twice: {other.called} has it, and so has {part.run.path}: name one"
                )
    return chosen


def _same(one: Part, other: Part, number: int) -> bool:
    return one.rounds[number] == other.rounds[number]


def _copy(run: RunFolder, chosen: Mapping[int, Part], into: Part | None) -> list[int]:
    """What ``into`` has not yet; returns the rounds. A trial is there whole or not at all, whenever this is killed."""
    added = []
    for number, part in sorted(chosen.items()):
        if part is into:
            continue
        added.append(number)
        for record in into.rounds.get(number, ()) if into else ():
            set_aside(run.trial_folder(record.trial))
        for record in part.rounds[number]:
            target = run.trial_folder(record.trial)
            partial = target.with_name(f"{target.name}.merging")
            if partial.exists():
                shutil.rmtree(partial)
            try:
                _copy_folder(part.run.trial_folder(record.trial), partial)
            except OSError as error:
                raise RecordsError(f"cannot copy {error.filename}: {error.strerror}") from None
            set_aside(target)  # begun there, and not ended
            partial.rename(target)
    if added:
        sync_folder(run.path / "trials")
    return added


def _copy_folder(source: Path, target: Path) -> None:
    """Files and folders, and nothing that leads elsewhere: another machine has sent this."""
    target.mkdir(parents=True)
    for entry in sorted(source.iterdir()):
        if entry.is_symlink() or not (entry.is_dir() or entry.is_file()):
            raise RecordsError(f"{entry} is neither a file nor a folder, so it is none of a run's records")
        if entry.is_dir():
            _copy_folder(entry, target / entry.name)
        else:
            copy_durably(entry, target / entry.name)


def _manifest(
    every: Sequence[Part],
    measured: Sequence[Part],
    rounds: tuple[int, int],
    present: Sequence[int],
    rests: tuple[Rest, ...],
    study: Study,
) -> Manifest:
    base, like = every[0].manifest, (measured or every)[0].manifest
    own = every[0].manifest.assigned is None
    manifests = [part.manifest for part in measured]
    return replace(
        base,
        run=base.run if own else new_run_id(),
        nodes=like.nodes,
        plan=_plan(manifests) or base.plan,
        devices=tuple(dict.fromkeys(device for each in manifests for device in each.devices)),
        started=min(each.started for each in (manifests or [base])),
        finished=now(),
        stopped=MergedRuns(len(measured), tuple(present)) if present else base.stopped,
        rounds=rounds,
        assigned=None,
        rests=rests,
        rest_from=base.rest_from if own else None if rule_of(study, rounds).until == "rounds" else rounds[0],
        platform_notes=tuple(dict.fromkeys(note for each in manifests for note in each.platform_notes)),
        cautions=tuple(dict.fromkeys(caution for each in manifests for caution in each.cautions)),
        emulated=any(each.emulated for each in manifests),
    )


def _plan(manifests: Sequence[Manifest]) -> Planned | None:
    """A cell that any of the machines could run was not unsupported."""
    plans = [each.plan for each in manifests if each.plan is not None]
    if not plans:
        return None
    of_cells = grouped((cell.cell, cell) for plan in plans for cell in plan.cells)
    cells = [next((cell for cell in those if not cell.unsupported), those[0]) for those in of_cells.values()]
    return replace(plans[0], cells=cells)
