"""An assignment: some rounds of a run, which one machine does while others do the rest.

The order of a round follows from the run's seed and the round's number, and so do the numbers of its trials. So an
assignment needs nothing of the others: the study, the seed and two numbers are all that a queue has to carry, and what
comes back are trials that belong nowhere else. There is no stopping rule inside, since what it would look at is only a
part of the evidence, and cells that rest do so because of what the run knew when its rounds were assigned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from storlab.errors import UserError
from storlab.records.manifest import Manifest
from storlab.records.run_folder import Host, RunFolder, TrialRecord, set_aside
from storlab.run.limits import AS_PLANNED, Assignment, Extent
from storlab.run.planning.plan import Plan
from storlab.run.planning.schedule import Schedule
from storlab.study.study import Study


def manifest_of(own: Manifest, assignment: Assignment, rounds: tuple[int, int]) -> Manifest:
    """That of a run with nothing but these rounds. ``rounds``: those of the whole run, at least and at most."""
    assigned = (assignment.first, assignment.last)
    return replace(own, rounds=rounds, assigned=assigned, rests=assignment.rests, rest_from=None)


def assignment_of(manifest: Manifest, extent: Extent) -> Assignment | None:
    """What a run was assigned; ``None`` where it is a whole one. Raises ``UserError`` where more is asked of it."""
    if manifest.assigned is None:
        return None
    first, last = manifest.assigned
    if extent != AS_PLANNED:
        raise UserError(
            f"this run is an assignment, rounds {first} to {last} of another: more rounds are another assignment, or "
            "are added to what `storlab merge` makes of all"
        )
    return Assignment(first, last, manifest.rests, manifest.order)


def done_of(assigned: tuple[int, int]) -> str:
    """Why it ended, as a sentence."""
    first, last = assigned
    which = f"Round {first}" if first == last else f"Rounds {first} to {last}"
    return f"{which} of the run, as assigned; `storlab merge` puts them together with the others."


def refuse_unassignable(study: Study) -> None:
    """Raise ``UserError`` where rounds are about each other, so that one machine must do all."""
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
    schedule = Schedule(run.manifest.rests, None)
    of_rounds: dict[int, list[TrialRecord]] = {}
    for record in records:
        of_rounds.setdefault(record.round, []).append(record)
    found = False
    for number, those in of_rounds.items():
        elsewhere = sorted({record.hosts[0].name for record in those if record.hosts and record.hosts[0] != here})
        due = {each.number for each in schedule.due(plan.order(number)) if each.cell not in _unsupported(plan, records)}
        if not elsewhere or due <= {record.trial for record in those}:
            continue
        found = True
        notify(f"Round {number} was begun on {', '.join(elsewhere)} and not ended: it is done here, whole.")
        for record in those:
            set_aside(run.trial_folder(record.trial))
    return found


def _unsupported(plan: Plan, records: Iterable[TrialRecord]) -> set[int]:
    return {*plan.unsupported, *(record.cell for record in records if record.status == "unsupported")}
