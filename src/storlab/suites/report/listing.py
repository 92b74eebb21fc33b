"""What ``storlab suite list`` shows of a suite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from storlab.base.text import grouped
from storlab.report.language.format import duration, plural
from storlab.suites.history import Past, PastTest
from storlab.suites.model import Expectations, Group, Suite, report_name, test_name
from storlab.suites.places.kinds import OWN_TESTS
from storlab.suites.report.formats import to_json


def listed(suite: Suite, expectations: Expectations, lacking: Mapping[str, list[str]], past: Past) -> Iterator[str]:
    lacks = _by_test(lacking)
    for group in suite.groups:
        limit = f"{duration(group.timeout)} each" if group.timeout is not None else "no time-out"
        around = [name for name, script in (("pre", group.pre), ("post", group.post)) if script is not None]
        about = [limit, *([" and ".join(around)] if around else []), *([", ".join(group.tags)] if group.tags else [])]
        yield f"{group.name}  ({'; '.join(about)})"
        for test in group.tests:
            name = report_name(test.path)
            notes = [f"as {test.user}"] if test.user not in ("", "root") else []
            for kind, table in (("known", expectations.known), ("maybe", expectations.maybe)):
                notes += [f"{kind}: {table[name].outcome}: {table[name].reason}"] if name in table else []
            notes += [f"lacks {', '.join(lacks[test.path])}"] if test.path in lacks else []
            notes += [_before(past[group.name, test.path])] if (group.name, test.path) in past else []
            shown = test_name(test.path, OWN_TESTS)
            yield f"  {shown}  ({'; '.join(notes)})" if notes else f"  {shown}"
    for absent in suite.absent:
        yield f"{absent}"
    yield f"{plural(suite.size, 'test')} in {plural(len(suite.groups), 'group')}"


def _before(past: PastTest) -> str:
    rate = f"passed {past.passed} of {past.decided}"
    return f"{rate}, {duration(past.seconds)}, last {past.last_outcome} on {past.last:%Y-%m-%d %H:%M} UTC"


def _by_test(lacking: Mapping[str, list[str]]) -> dict[str, list[str]]:
    return grouped((test, program) for program, tests in lacking.items() for test in tests)


def listed_json(suite: Suite, expectations: Expectations, lacking: Mapping[str, list[str]], past: Past) -> str:
    document = {
        "suite": suite.name,
        "groups": [_group(group, expectations, _by_test(lacking), past) for group in suite.groups],
        "absent": [str(each) for each in suite.absent],
    }
    return to_json(document).removesuffix("\n")


def _group(group: Group, expectations: Expectations, lacks: Mapping[str, list[str]], past: Past) -> dict[str, object]:
    tests = [
        {
            "test": test.path,
            "user": test.user,
            "known": expectations.known.get(report_name(test.path)),
            "maybe": expectations.maybe.get(report_name(test.path)),
            "lacks": lacks.get(test.path, []),
            "before": past.get((group.name, test.path)),
        }
        for test in group.tests
    ]
    return {"group": group.name, "tags": group.tags, "timeout": group.timeout, "tests": tests}
