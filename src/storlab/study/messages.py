"""pydantic's errors in Storlab's words: what is wrong and what to write instead."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from storlab.study.positions import Path

_KINDS = {
    "string_type": "a string",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "dict_type": "a table",
    "model_type": "a table",
    "tuple_type": "a list",
    "list_type": "a list",
}


def explain(error: ValidationError, model: type[BaseModel]) -> Iterator[tuple[Path, str]]:
    """(path below the model, message) for each problem; alternatives of a union come as one."""
    seen: set[Path] = set()
    for detail in error.errors(include_url=False):
        path = _real_path(detail, model)
        if path not in seen:
            seen.add(path)
            yield path, _message(detail, path, model)


def _real_path(detail: ErrorDetails, model: type[BaseModel]) -> Path:
    """Without the parts that pydantic adds for the alternatives of a union, such as ``str`` or ``function-before``."""
    path: list[str | int] = []
    here: Any = detail["loc"]
    for part in here:
        if isinstance(part, str) and ("[" in part or part in ("str", "int", "float", "bool")):
            break
        path.append(part)
    return tuple(path)


def _message(detail: ErrorDetails, path: Path, model: type[BaseModel]) -> str:
    kind, given = detail["type"], detail["input"]
    match kind:
        case "extra_forbidden":
            return _unknown_key(str(path[-1]), _model_at(path[:-1], model))
        case "missing":
            return "this key is missing"
        case "value_error":
            return str(detail["ctx"]["error"])
        case "literal_error":
            expected = detail["ctx"]["expected"]
            words = [word.strip("' ") for word in expected.replace(" or ", ", ").split(",")]
            close = get_close_matches(str(given), words, n=1)
            return f"{given!r} is none of {expected}" + (f"; did you mean {close[0]!r}?" if close else "")
        case _ if kind in _KINDS:
            return f"{given!r} should be {_KINDS[kind]}"
        case _:
            return f"{given!r}: {detail['msg'][:1].lower()}{detail['msg'][1:]}"


def _unknown_key(key: str, model: type[BaseModel] | None) -> str:
    if model is None:
        return "this key is unknown"
    known = [info.alias or name for name, info in model.model_fields.items()]
    close = get_close_matches(key, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(known)}"
    return f"this key is unknown; {hint}"


def _model_at(path: Path, model: type[BaseModel]) -> type[BaseModel] | None:
    """The model that the keys at ``path`` belong to."""
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
