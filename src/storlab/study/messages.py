"""pydantic's errors in Storlab's words: what is wrong and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from storlab.base.units import shown
from storlab.study.toml_text import Path

_KINDS = {
    "string_type": "text in quotes",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number that is not as large",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "dict_type": "a table: { key = value }",
    "model_type": "a table: { key = value }",
    "tuple_type": "a list: [ … ]",
    "list_type": "a list: [ … ]",
}
_LIMITS = {
    "greater_than_equal": ("ge", "at least"),
    "less_than_equal": ("le", "at most"),
    "greater_than": ("gt", "more than"),
    "less_than": ("lt", "less than"),
}
_ALTERNATIVE = re.compile(r"\w[\w-]*\[.*\]|str|int|float|bool|dict|list", re.DOTALL)


class WrongKey(str):
    """A part of a path that is wrong itself, wherever its value comes from."""

    __slots__ = ()


def nearest(word: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` where something close exists, else nothing."""
    close = _closest(word, known)
    return f"; did you mean {close!r}?" if close else ""


def unknown(what: str, word: object, known: Iterable[str]) -> str:
    """That there is no ``what``, which names the ``word``; and the one that was meant, or else all that there are."""
    names = list(known)
    meant = nearest(word, names) if isinstance(word, str) else ""
    return f"unknown {what}{meant or '; there are: ' + (', '.join(names) or 'none')}"


def no_level(factor: str, level: str, levels: Sequence[str]) -> str:
    has = nearest(level, levels) or f"; it has {', '.join(levels)}"
    return f"{factor} has no level {level!r}{has}"


def _closest(word: str, known: Iterable[str]) -> str:
    names = {name.lower(): name for name in known}
    close = get_close_matches(word.lower()[:100], names, n=1)
    return names[close[0]] if close else ""


def explain(error: ValidationError, model: type[BaseModel]) -> Iterator[tuple[Path, str]]:
    """(path below the model, message) for each problem; alternatives of a union come as one."""
    by_path: dict[Path, list[ErrorDetails]] = {}
    for detail in error.errors(include_url=False):
        by_path.setdefault(_real_path(detail), []).append(detail)
    told: set[tuple[Path, str]] = set()
    misspelt = set()
    for path, details in by_path.items():
        if details[0]["type"] == "extra_forbidden":
            misspelt.add((*path[:-1], _nearest_key(str(path[-1]), _model_at(path[:-1], model))))
    above = {path[:depth] for path in by_path for depth in range(len(path))}
    for path, details in by_path.items():
        if path in above:
            continue  # what is wrong inside says it better
        if details[0]["type"] == "missing" and path in misspelt:
            continue  # it is there, under another name
        if path and isinstance(path[-1], int):
            list_of_one_kind = path[:-1], details[0]["type"]
            if list_of_one_kind in told:
                continue  # a list of nothing but words where lists are wanted is one mistake, not one each
            told.add(list_of_one_kind)
        at = getattr(details[0].get("ctx", {}).get("error"), "path", ())
        yield (*path, *at), _message(details, path, model)


def _real_path(detail: ErrorDetails) -> Path:
    """Without the parts that pydantic adds for the alternatives of a union, such as ``str`` or ``function-before[…]``,
    and for a key that is itself wrong.
    """
    path: list[str | int] = []
    here: Any = detail["loc"]
    if detail["type"] == "extra_forbidden":
        return (*here[:-1], WrongKey(here[-1]))
    for index, part in enumerate(here):
        if index and isinstance(part, str) and (part == "[key]" or _ALTERNATIVE.fullmatch(part)):
            break
        path.append(part)
    return tuple(path)


def _message(details: list[ErrorDetails], path: Path, model: type[BaseModel]) -> str:
    detail = details[0]
    kind, given, context = detail["type"], shown(detail["input"]), detail.get("ctx", {})
    wanted = list(dict.fromkeys(_KINDS[each["type"]] for each in details if each["type"] in _KINDS))
    match kind:
        case "extra_forbidden":
            return _unknown_key(str(path[-1]), _model_at(path[:-1], model))
        case "missing" if path and isinstance(path[-1], int):
            return "this list is too short"
        case "missing":
            return "this key is missing"
        case "value_error":
            return str(context["error"])
        case "literal_error" if " or " not in str(context["expected"]):
            return f"{given} should be {context['expected']}"
        case "literal_error":
            expected = str(context["expected"])
            words = [word.strip("' ") for word in expected.replace(" or ", ", ").split(",")]
            if not isinstance(detail["input"], str) and str(detail["input"]) in words:
                return f'{given} should be in quotes: "{given}"'
            return f"{given} is not one of {expected}{nearest(str(detail['input']), words)}"
        case "too_short":
            return f"{given} is too short: it takes at least {context['min_length']}"
        case "too_long":
            return f"{given} is too long: it takes at most {context['max_length']}"
        case "string_too_short":
            return f"{given} is empty: write a text"
        case _ if kind in _LIMITS:
            key, words_for_it = _LIMITS[kind]
            return f"{given} should be {words_for_it} {context[key]}"
        case _ if wanted:
            return f"{given} should be {_either(wanted)}"
        case _:
            return f"{given}: {detail['msg'][:1].lower()}{detail['msg'][1:]}"


def _either(wanted: list[str]) -> str:
    if "a whole number" in wanted and "a number" in wanted:
        wanted.remove("a whole number")
    return wanted[0] if len(wanted) == 1 else f"{', '.join(wanted[:-1])} or {wanted[-1]}"


def _unknown_key(key: str, model: type[BaseModel] | None) -> str:
    if model is None:
        return "this key is unknown"
    within = next((name for name, info in model.model_fields.items() if _has_key(info.annotation, key)), "")
    if within:
        return f"this key is unknown here; write {within} = {{ {key} = … }}"
    close = _nearest_key(key, model)
    known = ", ".join(info.alias or name for name, info in model.model_fields.items())
    return f"this key is unknown; did you mean {close!r}?" if close else f"this key is unknown; there are: {known}"


def _has_key(annotation: Any, key: str) -> bool:
    """Whether a table that may stand there has this key."""
    kinds = (annotation, *get_args(annotation))
    return any(isinstance(cls, type) and issubclass(cls, BaseModel) and key in cls.model_fields for cls in kinds)


def _nearest_key(key: str, model: type[BaseModel] | None) -> str:
    fields = {} if model is None else model.model_fields
    return _closest(key, (info.alias or name for name, info in fields.items()))


def _model_at(path: Path, model: type[BaseModel]) -> type[BaseModel] | None:
    here: type[BaseModel] | None = model
    for part in path:
        if here is None or isinstance(part, int):
            continue
        fields = {info.alias or name: info for name, info in here.model_fields.items()}
        here = _inner_model(fields[part].annotation) if part in fields else here
    return here


def _inner_model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in get_args(annotation):
        if (found := _inner_model(argument)) is not None:
            return found
    return None
