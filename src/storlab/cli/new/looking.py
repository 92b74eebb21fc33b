"""What this machine has to say to answers, by a plan of the study that they make: nothing is run or changed."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from storlab.errors import MissingImage, MissingTool, StudyError, UserError
from storlab.templates.answers import Answers
from storlab.templates.study import run_command, study_text, title_of

if TYPE_CHECKING:
    from storlab.run.planning.plan import Plan


@dataclass
class Looker:
    """``lacking``: what of the last answers this machine can't do as it is. ``enabled``: else it looks at nothing."""

    enabled: bool = True
    lacking: tuple[str, ...] = ()
    cells: int = 0
    supported: int = 0
    needs_image: bool = False
    time: str = ""
    options: str = ""  # that allow what the answers name, a device or a directory

    def check(self, answers: Answers) -> None:
        """Raises ``UserError`` for answers that can't be: a device in use, no such directory, more than is free."""
        from storlab.run.planning.wants import wants_of
        from storlab.study.study import parse_study

        study = parse_study(study_text(answers).encode(), "study.toml", _no_files)
        self.cells = self.supported = len(study.cells)
        self.lacking, self.needs_image, self.time = (), False, ""
        wants = wants_of(study, None)
        self.options = "".join(f" {want.option}" for want in wants)
        if not self.enabled:
            return
        from storlab.run.beginning import new_run_id
        from storlab.run.permissions import Permissions
        from storlab.run.planning.plan import make_plan
        from storlab.run.session import open_session

        async def look() -> Plan:
            everything = frozenset(want.permission for want in wants)  # the user's own answers
            async with open_session(new_run_id(), permissions=Permissions(allowed=everything)) as session:
                return await make_plan(study, session, 0, (study.model.repeat.min, study.model.repeat.max))

        try:
            plan = asyncio.run(look())
        except MissingImage as error:
            self.lacking, self.needs_image, self.supported = (str(error),), True, 0
        except MissingTool as error:
            self.lacking, self.supported = (str(error),), 0
        except StudyError as error:
            raise UserError("; ".join(dict.fromkeys(problem.message for problem in error.problems))) from None
        else:
            reasons = (reason for found in plan.unsupported.values() for reason in found)
            self.lacking, self.supported = tuple(dict.fromkeys(reasons)), len(plan.supported)
            self.time = _time(plan, answers.minutes)

    def is_occupied(self, answers: Answers) -> str | None:
        """Why a device is refused that its name, written once more, would release; ``None``: nothing would, or need."""
        if answers.target != "device" or answers.wipe:
            return None
        try:
            self.check(answers)
        except UserError as error:
            self.check(replace(answers, wipe=answers.path))  # raises what is against it in any case
            return re.sub(r"\s*Write wipe = .*$", "", str(error))  # that is for who has the study before him
        return None

    def next_command(self, answers: Answers, file: str) -> str:
        """What to do with the study now."""
        if self.needs_image:
            return f"{run_command(answers, file)} --build{self.options}"
        command = run_command(answers, file) if self.enabled and self.supported else f"storlab plan {file}"
        return f"{command}{self.options}"

    def in_short(self, answers: Answers) -> str:
        """What was written, in a line."""
        cells = "1 set-up" if self.cells == 1 else f"{self.cells} set-ups"
        able = "" if self.supported == self.cells else f", of which {self.supported or 'none'} can run here"
        return f"{title_of(answers)}; {cells}{able}{f'; {self.time}' if self.time and self.supported else ''}"


def _time(plan: Plan, minutes: float | None) -> str:
    """How long it would take, as far as its loads say that."""
    from storlab.report.language.format import duration
    from storlab.run.planning.estimates import round_time

    expected = round_time(plan)
    if expected.unknown or not plan.supported:
        return ""
    longest = expected.seconds * plan.rounds[1]
    least, most = (duration(round(seconds)) for seconds in (expected.seconds * plan.rounds[0], longest))
    if minutes is not None and longest > minutes * 60:
        return f"at most {duration(round(minutes * 60))}"
    return f"about {least}" if least == most else f"about {least} to {most}"


def _no_files(name: str) -> str:
    raise ValueError(f"no file {name}")
