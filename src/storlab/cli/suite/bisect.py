"""``storlab suite bisect``: which commit, kernel or image made a test fail, though it may fail only now and then."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from storlab.base.errors import UserError
from storlab.cli.options import Allow, Json, Quiet, Strings
from storlab.cli.output import show, show_json, warn

if TYPE_CHECKING:
    from storlab.suites.bisect import Plan, Step
    from storlab.suites.culprit import Culprits

Build = Annotated[
    Strings, Argument(metavar="[-- BUILD...]", help="Run once for each candidate before it is checked; {} is its name.")
]


def bisect(
    build: Build = None,
    good: Annotated[str, Option("--good", metavar="CANDIDATE", help="One that passes.")] = "",
    bad: Annotated[str, Option("--bad", metavar="CANDIDATE", help="One that fails, at least now and then.")] = "",
    check: Annotated[
        str, Option("--check", metavar="COMMAND", help="A run of the test: 0 passes, 125 can't be tested, others fail.")
    ] = "",
    repository: Annotated[Path, Option("--repo", metavar="DIR", help="The git repository with the commits.")] = Path(),
    candidates: Annotated[
        str, Option("--candidates", metavar="A,B,...|@FILE", help="Kernels or images rather than commits, in order.")
    ] = "",
    error: Annotated[
        float, Option("--error", min=1e-6, max=0.5, help="The chance that the wrong one is named.")
    ] = 0.05,
    at_least: Annotated[
        float, Option("--at-least", min=0.001, max=0.99, help="The lowest failure rate to be detected.")
    ] = 0.05,
    flaky_before: Annotated[
        bool, Option("--flaky-before", help="The test failed now and then before, too, but less often.")
    ] = False,
    timeout: Annotated[
        float, Option("--timeout", min=0, metavar="SECONDS", help="Time-out of a build or check; 0: none.")
    ] = 0,
    out: Annotated[Path | None, Option("--out", metavar="DIR", help="A new folder for what is done.")] = None,
    resume: Annotated[
        Path | None,
        Option("--resume", metavar="DIR", help="Continue one that was interrupted; its commands must be allowed."),
    ] = None,
    allow: Allow = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Find the first commit, kernel or image with which a test fails, even if only now and then."""
    from storlab.cli.options import new_folder
    from storlab.records.held import make_private
    from storlab.records.manifest import LOCK
    from storlab.run.permissions import Permissions, parse_allowed
    from storlab.run.recovery.journal import refuse_others
    from storlab.suites.bisect import JOURNAL, PLAN, Plan, read_plan, write_plan
    from storlab.suites.run.wants import refuse_unpermitted, wants_of_bisection

    if resume is not None:
        if good or bad or check or candidates or build or out:
            raise UserError("--resume takes what was asked for from its folder: leave the other options out")
        refuse_others(resume, PLAN, JOURNAL, LOCK)
        known = read_plan(resume)
        permissions = Permissions(allowed=parse_allowed(allow or ()))
        refuse_unpermitted(resume / PLAN, wants_of_bisection(known), permissions)
        _execute(resume, known, quiet=quiet, json=json)
        return
    if not (good and bad and check):
        raise UserError(
            "--good, --bad and --check are needed: one that passes, one that fails, and what tells them apart"
        )
    try:
        words = shlex.split(check)
    except ValueError as reason:
        raise UserError(f"--check {check}: {reason}") from None
    if not words:
        raise UserError("--check: it is empty")
    named = _candidates(candidates, good, bad, repository)
    commits = "" if candidates else str(repository.resolve())
    plan = Plan(
        tuple(named), tuple(build or ()), tuple(words), error, at_least, flaky_before, timeout, str(Path.cwd()), commits
    )
    folder = (out or new_folder("bisect")).resolve()
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} is not empty: name another --out, or continue with --resume {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    make_private(folder)
    write_plan(folder, plan)
    _execute(folder, plan, quiet=quiet, json=json)


def _candidates(written: str, good: str, bad: str, repository: Path) -> list[str]:
    from storlab.suites.bisect import commits_between

    if not written:
        return commits_between(repository, good, bad)
    if written.startswith("@"):
        try:
            names = Path(written[1:]).read_text("utf-8").split()
        except (OSError, UnicodeError) as reason:
            raise UserError(f"cannot read {written[1:]}: {reason}") from None
    else:
        names = [name.strip() for name in written.split(",") if name.strip()]
    for option, name in (("--good", good), ("--bad", bad)):
        if names.count(name) != 1:
            raise UserError(f"{option} {name}: it is to be one of --candidates, once")
    first, last = names.index(good), names.index(bad)
    if first >= last:
        raise UserError(f"--candidates: --good {good} comes before --bad {bad}; write them in order")
    return names[first : last + 1]


def _execute(folder: Path, plan: Plan, *, quiet: bool, json: bool) -> None:
    import contextlib

    from storlab.records.run_folder import RunFolder
    from storlab.run.observer import ended_as_by_ctrl_c
    from storlab.suites.bisect import TREE, Bench, Worktree, read_steps
    from storlab.suites.culprit import Terms, find_culprit

    folder = folder.resolve()

    def notify(count: int, step: Step) -> None:
        if not quiet and not json:
            said = "can't be tested" if step.passed is None else "passed" if step.passed else "failed"
            why = f": {step.why}" if step.why and step.passed is None else ""
            name = plan.candidates[step.number]
            warn(f"{count:4} {name[:12] if plan.repository else name} {said}{why} ({step.elapsed:.1f} s)")

    with ended_as_by_ctrl_c(), RunFolder(folder).lock(), contextlib.ExitStack() as stack:
        before = read_steps(folder)
        if before and not quiet:
            warn(f"{len(before)} checks were done before.")
        tree = stack.enter_context(Worktree(Path(plan.repository), folder / TREE)) if plan.repository else None
        bench = Bench(folder, plan, tree, notify, before)
        try:
            terms = Terms(plan.error, plan.least, plan.flaky)
            found = find_culprit(len(plan.candidates) - 1, bench.probe, terms)
        except KeyboardInterrupt:
            warn(f"storlab: interrupted; `storlab suite bisect --resume {folder}` continues")
            raise
    _say(folder, plan, found, json=json)


def _say(folder: Path, plan: Plan, found: Culprits, *, json: bool) -> None:
    import msgspec

    from storlab.suites.bisect import described

    names = [plan.candidates[number] for number in found.candidates]
    if json:
        document = {
            "culprits": names,
            "probability": found.probability,
            "error": plan.error,
            "tests": found.tests,
            "failure_rate": found.rate,
            "folder": str(folder),
        }
        show_json(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
        return
    shown = [described(Path(plan.repository), name) for name in names] if plan.repository else names
    show("First bad:" if len(shown) == 1 else "The first bad one is among these, not all of which can be tested:")
    for each in shown:
        show(f"  {each}")
    show(
        f"With a probability of {found.probability:.1%} ({1 - plan.error:.1%} was asked for), by {found.tests} checks. "
        f"From there on the check fails in about {found.rate * 100:.0f} % of its runs."
    )
    show(f"Output: {folder}")
