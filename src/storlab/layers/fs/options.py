"""Options of mounts and arguments of mkfs as studies write them: those that ``storlab.allowed`` lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

from storlab.allowed import NotAllowed, allowed, option_and_value, tables_of, together
from storlab.reach import options_of

_Options = tuple[Annotated[str, options_of("mount")], ...]


def _split(value: object) -> object:
    return tuple(part for part in value.split(",") if part) if isinstance(value, str) else value


def _only(*parts: str) -> Callable[[_Options], _Options]:
    def check(options: _Options) -> _Options:
        words = tuple(word for option in options for word in option.split(",") if word)
        if (wrong := wrong_mount_option(words, *parts)) is not None:
            raise ValueError(wrong)
        return words

    return check


_SPLIT = BeforeValidator(_split, json_schema_input_type=str | tuple[str, ...])

# One string as mount(8) takes it, or a list.
OfDisks = Annotated[_Options, _SPLIT, AfterValidator(_only("ext4", "xfs", "btrfs", "dax"))]
OfNfs = Annotated[_Options, _SPLIT, AfterValidator(_only("nfs"))]
OfSmb = Annotated[_Options, _SPLIT, AfterValidator(_only("smb"))]
OfSshfs = Annotated[_Options, _SPLIT, AfterValidator(_only("sshfs"))]
Of9p = Annotated[_Options, _SPLIT, AfterValidator(_only("9p"))]
OfVirtiofs = Annotated[_Options, _SPLIT, AfterValidator(_only("virtiofs"))]


def wrong_mount_option(words: Sequence[str], *parts: str) -> str | None:
    """What is wrong with the first of these options that none of the parts lists, which every mount has as well."""
    table = together(*(allowed("mount", part) for part in (*parts, "mount")))
    found = table.first_problem(option_and_value(word) for word in words)
    return None if found is None else found[1]


def of_another(words: Sequence[str], filesystem: str) -> str | None:
    return wrong_mount_option(words, filesystem, "dax")


def arguments_of(filesystem: str, words: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """The options among these words for mkfs. Raises ``NotAllowed``."""
    table, left = allowed("mkfs", filesystem), [*enumerate(words)]
    while left:
        number, word = left.pop(0)
        name, value = option_and_value(word) if word.startswith("--") else (word, None)
        rule = table.rule_of(name)
        if rule is not None and rule.takes_value and value is None and left:
            value = left.pop(0)[1]
        wrong = table.problem(name, value) or _wrong_within(f"{filesystem} {name}", value)
        if wrong is not None:
            apart = "" if name.startswith("--") or len(name) == 2 else "; an option is one word, its value the next"
            raise NotAllowed(wrong + apart, number)
        yield name, value


def _wrong_within(part: str, value: str | None) -> str | None:
    if part not in tables_of("mkfs"):
        return None
    found = allowed("mkfs", part).first_problem(option_and_value(word) for word in (value or "").split(","))
    return None if found is None else found[1]


def words_of(name: str, value: str | None) -> list[str]:
    if value is None:
        return [name]
    return [f"{name}={value}"] if name.startswith("--") else [name, value]


def check_arguments(filesystem: str, words: Sequence[str]) -> None:
    for _ in arguments_of(filesystem, words):
        pass


def check_features(filesystem: str, features: Sequence[str]) -> None:
    for number, feature in enumerate(features):
        for word in feature.split(","):
            wrong = allowed("mkfs", f"{filesystem} features").problem(word.removeprefix("^"))
            if wrong is not None:
                raise NotAllowed(wrong, number)
