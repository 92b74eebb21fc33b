"""The questions of ``storlab new``: asked on a terminal, or answered by asked."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from rich.prompt import InvalidResponse, PromptBase
from rich.text import Text

from storlab.cli.console import Console
from storlab.cli.new.asked import DIRECTORY, Asked, answers_of, place_of, usual_place
from storlab.cli.new.looking import Looker
from storlab.errors import UserError
from storlab.templates.answers import EXTENTS, LOADS, SUBJECTS, TARGETS, Answers

T = TypeVar("T")


class _Question(PromptBase[Any]):
    """Asks until ``read`` takes the answer; its ``UserError`` says what is wrong with one."""

    read: Callable[[str], Any]
    default_answer = ""

    def process_response(self, value: str) -> Any:
        try:
            return self.read(value.strip() or self.default_answer)
        except UserError as error:
            raise InvalidResponse(Text(str(error), style="red")) from None

    def on_validate_error(self, value: str, error: InvalidResponse) -> None:
        self.console.print(error.message)


@dataclass(frozen=True)
class _Asker:
    console: Console

    def ask(self, words: str, read: Callable[[str], T], default: str = "") -> T:
        """One question; ``read`` makes something of an answer, or raises ``UserError``."""
        question = _Question(
            Text.assemble((words, "bold"), f" [{default}]" if default else ""), console=self.console, show_default=False
        )
        question.read, question.default_answer = read, default
        answer: T = question()
        return answer

    def choose(self, words: str, choices: Mapping[str, str], read: Callable[[str], T], default: str) -> T:
        """One of several, by name or number."""
        self.console.print()
        width = max(map(len, choices))
        for number, (name, says) in enumerate(choices.items(), start=1):
            self.console.print(Text.assemble(f"  {number}  ", (f"{name:<{width}}", "cyan"), f"  {says}"))
        names = list(choices)

        def by_number(answer: str) -> T:
            chosen = names[int(answer) - 1] if answer.isdecimal() and 1 <= int(answer) <= len(names) else answer
            return read(chosen)

        return self.ask(words, by_number, default)


def ask(asked: Asked, look: Looker) -> Answers:
    """Ask for what the options leave open, each answer looked at as it is given. Raises ``UserError`` for asked."""
    asker = _Asker(Console(stderr=True))
    asker.console.print("Five questions make a study. Enter accepts the answer in brackets, Ctrl-C writes nothing.")
    try:
        return _ask(asked, look, asker)
    except EOFError:  # Ctrl-D
        asker.console.print()
        raise KeyboardInterrupt from None


def _ask(asked: Asked, look: Looker, asker: _Asker) -> Answers:
    said: set[str] = set()

    def taken(answers: Answers) -> Answers:
        look.check(answers)
        for lacking in [each for each in look.lacking if each not in said]:
            said.add(lacking)
            asker.console.print(Text(f"  not on this machine as it is: {lacking}", style="yellow"))
        return answers

    if asked.compare is not None:
        answers = Answers(asked.compare)
    else:
        says = {name: subject.says for name, subject in SUBJECTS.items()}
        usual = "file-systems" if os.geteuid() == 0 else "safety"  # the first that this user can run
        answers = asker.choose("1. What do you want to compare?", says, Answers, usual)
    answers = _ask_place(answers, asked, look, asker, taken)
    subject = SUBJECTS[answers.compare]
    if asked.load is not None:
        answers = replace(answers, load=asked.load)
    else:
        says = {name: LOADS[name] for name in subject.loads}
        answers = asker.choose("3. Under which load?", says, lambda load: replace(answers, load=load), subject.loads[0])
    if asked.until is not None:
        answers = replace(answers, extent=asked.until)
    else:
        answers = asker.choose("4. How precise, or how long?", EXTENTS, lambda u: replace(answers, extent=u), "decided")
    return _ask_guests(answers, asked, asker, taken)


def _ask_place(
    answers: Answers, asked: Asked, look: Looker, asker: _Asker, taken: Callable[[Answers], Answers]
) -> Answers:
    if asked.on is not None:
        placed = Asked(answers.compare, asked.on, asked.size, asked.wipe)
        return taken(answers_of(placed, look))

    def located(on: str) -> Answers:
        target, path = place_of(on)
        placed = replace(answers, target=target, path=path, wipe=asked.wipe or "", size=asked.size or answers.size)
        if (reason := look.is_occupied(placed)) is None:
            return taken(placed)
        asker.console.print(Text(reason, style="yellow"))

        def again(name: str) -> Answers:
            return taken(replace(placed, wipe=name)) if name else answers

        return asker.ask("Type its name again to allow that, or press Enter to choose another", again)

    usual = "directory" if usual_place(answers.compare) == DIRECTORY else "file"
    chosen = asker.choose("2. On what?", TARGETS, lambda word: word if word in TARGETS else located(word), usual)
    while not isinstance(chosen, Answers) or chosen is answers:
        if chosen == "file":
            usual = asked.size or answers.size
            chosen = asker.ask("   How large?", lambda size: taken(replace(answers, size=size)), usual)
        else:
            kind = "directory" if chosen == "directory" else "device"
            chosen = asker.ask(f"   Path of the {kind}", located, DIRECTORY if kind == "directory" else "")
            chosen = kind if chosen is answers else chosen
    return chosen


def _ask_guests(answers: Answers, asked: Asked, asker: _Asker, taken: Callable[[Answers], Answers]) -> Answers:
    subject = SUBJECTS[answers.compare]
    if asked.guests is not None:
        return taken(replace(answers, guests=asked.guests))
    if subject.guests and subject.most_guests == 1:
        return taken(answers)

    def counted(text: str) -> Answers:
        if not text.isdecimal():
            raise UserError(f"{text}: enter a number")
        return taken(replace(answers, guests=int(text[:9])))

    words = "5. How many virtual machines?" if subject.guests else "5. In how many virtual machines? 0: on this machine"
    return asker.ask(words, counted, str(answers.guests))
