"""Text that a tool printed and others passed on: quoted in mail, indented in a page, with time stamps and colours.

What stands before each line of a tool's output where something else passed it on: time stamps of CI and of logs,
names of pods and hosts, the ``> `` of mail, colours.

Such a thing may as well be part of the output itself, as vdbench's times are: so nothing is taken away from text
that a reader knows as it is. It tries what ``peeled`` yields, in order, and takes the first that it knows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import islice
from typing import TypeVar

from storlab.base.errors import ParseError

_DEPTH = 6  # things before a line, one before the other
_SEVERAL = 3  # labels, as far as they are named
_SOUGHT = 1 << 22  # bytes in which something must stand before lines: what passes one line on, passes on all

# Colours and cursor movements (ECMA-48, CSI), titles and links (OSC), Buildkite's times (APC), and two of nothing.
_ESCAPES = re.compile(
    rb"\x1b(?:\[[0-?]{0,32}[ -/]{0,4}[@-~]|[\]_][^\x07\x1b\n]{0,2000}(?:\x07|\x1b\\)|[()][A-Z0-9]|[=>78cM])"
)
_ENDS = re.compile(rb"(?<!\r)\r++(?=\n|\Z)")
_OVERWRITTEN = re.compile(rb"\n[^\n]*\r")

_ISO = rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[ ]?[+-]\d\d:?\d\d)?"
_SYSLOG = rb"(?:[A-Z][a-z]{2} )?[A-Z][a-z]{2} [ \d]\d (?:\d{4} )?\d\d:\d\d:\d\d(?:\.\d{1,9})?(?: \d{4})?"
_CLOCK = rb"\d{1,2}:\d\d:\d\d(?:[.,]\d{1,9})?"
_STAMP = rb"(?:" + _ISO + rb"|" + _SYSLOG + rb"|" + _CLOCK + rb")"
_PROGRAM = (
    rb"[\w.-]{1,255} (?:[\w./@:-]{1,255}\[\d{1,10}\]|kernel):"  # "host fio[123]:", as syslog and journald have it
)
_RUNTIME = rb"std(?:out|err) [FP]"  # of the container runtime interface, in /var/log/containers
_GITLAB = rb"\d\d[OE]"
_END = rb"(?:[ \t]|(?=\r?\n|\Z))"  # one sign: what is indented stays so

_FORMS = tuple(
    rb"\n" + form  # no "^", which is looked for at every sign of the text: ten times as slow
    for form in (
        rb"(?:> ?){1,16}",
        rb"(?:\xef\xbb\xbf)?[^\t\n]{1,255}\t[^\t\n]{1,255}\t(?=(?:\xef\xbb\xbf)?" + _ISO + rb")",  # gh run view --log
        rb"(?:\xef\xbb\xbf)?(?:\[" + _STAMP + rb"\]|" + _STAMP + rb":?)(?: " + _RUNTIME + rb"| " + _GITLAB + rb")?"
        rb"(?: (?P<label>" + _PROGRAM + rb"))?" + _END,
        rb"\[ {0,8}\d{1,9}\.\d{1,9}\]" + _END,  # the kernel's
        rb"(?P<label>[\w./-]{1,255}) {0,64}\|" + _END,  # docker compose
        rb"(?P<label>\[(?:std(?:out|err)|(?=[^\]\n]{0,255}[\d/:])[\w./:@-]{1,255})\])" + _END,  # kubectl logs --prefix
    )
)
_HOST = re.compile(rb"\s*(?P<begin>[\w.-]{1,255}:) ")
_POD = re.compile(rb"\s*(?P<begin>[a-z0-9][a-z0-9.]{0,200}-[a-z0-9.-]{1,52} [a-z0-9][a-z0-9-]{0,62}) ")


@cache
def _forms() -> tuple[re.Pattern[bytes], ...]:
    """Compiled for those who need them: that takes longer than to read most files."""
    return tuple(map(re.compile, _FORMS))


def peeled(text: bytes) -> Iterator[bytes]:
    """``text``, and what is left of it when one thing after the other is taken from before its lines.

    Lines keep their numbers. Of a form that names a program or a host, nothing is taken away where several are named:
    their lines would be taken for those of one (``labels_of`` names them).
    """
    yield text
    shown = as_shown(text)
    if shown != text:
        yield shown
    shown = b"\n" + shown
    for _ in range(_DEPTH):
        if (form := next((form for form in _forms() if _stands(form, shown)), None)) is not None:
            shown = form.sub(b"\n", shown)
        elif (host := _host(shown)) is not None:
            shown = re.sub(rb"\n" + re.escape(host) + rb"(?: |(?=\n|\Z))", b"\n", shown)
        else:
            return
        yield shown[1:]


def readings(text: bytes) -> Iterator[bytes]:
    """The same, each also without the blanks that stand before all of its lines."""
    for shown in peeled(text):
        yield shown
        margins = [line[: len(line) - len(line.lstrip())] for line in shown.split(b"\n") if line.strip()]
        margin = min(margins, key=len, default=b"")
        if margin and all(each.startswith(margin) for each in margins):
            yield re.sub(rb"(?m)^" + margin, b"", shown)


def as_shown(text: bytes) -> bytes:
    """``text`` as a terminal shows it: without colours, nor what a line was overwritten with (``\\r``)."""
    if b"\x1b" in text:
        text = _ESCAPES.sub(b"", text)
    if b"\r" in text:
        text = _OVERWRITTEN.sub(b"\n", b"\n" + _ENDS.sub(b"", text))[1:]
    return text


def labels_of(text: bytes) -> list[str]:
    """The programs or hosts that are named before lines of ``text``, a few of them; nothing where it is only one."""
    *_, last = peeled(text)
    found = (_labels(form, b"\n" + last) for form in _forms())
    return [label.decode(errors="replace") for label in next((each for each in found if len(each) > 1), [])]


def _stands(form: re.Pattern[bytes], text: bytes) -> bool:
    return len(list(islice(form.finditer(text, 0, _SOUGHT), 2))) > 1 and len(_labels(form, text)) < 2


def _labels(form: re.Pattern[bytes], text: bytes) -> list[bytes]:
    found: dict[bytes, None] = {}
    if "label" in form.groupindex:
        for match in form.finditer(text):
            if match["label"] is not None and len(found) < _SEVERAL:
                found.setdefault(match["label"])
    return list(found)


def _host(text: bytes) -> bytes | None:
    """What names the host before lines, as pdsh does, or the pod and container, as stern does: before each line, for
    tools begin lines of their own so.
    """
    lines = [line for line in text.split(b"\n") if line.strip()]
    for form in (_HOST, _POD):
        first = form.match(text)
        if first is not None and len(lines) > 1 and all(line.startswith(first["begin"]) for line in lines):
            return first["begin"]
    return None


Found = TypeVar("Found")


def read_passed_on(text: bytes, read: Callable[[bytes], Sequence[Found]], begin: bytes = b"") -> Sequence[Found]:
    """What ``read`` finds in ``text``, or in what is left of it without what stands before its lines.

    ``begin``: a pattern of what lines begin with that the tool doesn't indent, where its reader needs that. The
    most that is found counts, as in mail some lines are quoted and others are not. Raises the ``ParseError`` that says
    most.
    """
    found: Sequence[Found] = ()
    refused: ParseError | None = None
    for shown in peeled(as_shown(text)):
        try:
            parts = read(_at_margin(shown, begin) if begin else shown)
        except ParseError as error:
            refused = error if refused is None or (refused.line is None and error.line is not None) else refused
        else:
            found = parts if len(parts) >= len(found) else found
        if found and begin and not (b">" in shown and b"\n>" in shown):  # one sign is looked for much faster
            break  # where lines must begin so, nothing else stands before any
    if not found and refused is not None:
        raise refused
    return found


def _at_margin(text: bytes, begin: bytes) -> bytes:
    """``text`` without the blanks that stand before a line which begins so, there and below it."""
    indented = rb"[ \t]+(?:" + begin + rb")"
    if re.match(indented, text) is None and re.search(rb"\n" + indented, text) is None:
        return text
    known = re.compile(rb"([ \t]*+)(?:" + begin + rb")")
    margin = b""
    lines = text.split(b"\n")
    for at, line in enumerate(lines):
        if (found := known.match(line)) is not None:
            margin = found[1]
        lines[at] = line.removeprefix(margin)
    return b"\n".join(lines)
