"""What a suite run will run, by a look into its first guest: groups, order, what programs are missing."""

from __future__ import annotations

from collections.abc import Mapping

from storlab.errors import UserError
from storlab.suites.adapters.check import Check, CheckFile
from storlab.suites.adapters.zts import Zts
from storlab.suites.places.place import Place, SuiteGuest
from storlab.suites.records import CONSOLES, SuiteRecord, write_suite_record
from storlab.suites.records.here import who_lacks
from storlab.suites.run.asked import Asked, in_order
from storlab.suites.run.environment import environment_of
from storlab.suites.run.look import find_suite, lacking_programs
from storlab.suites.selection import select


async def plan(asked: Asked, place: Place) -> tuple[SuiteRecord, SuiteGuest]:
    name = place.name(1)
    console = f"001-{name}"
    guest = await place.open(name, place.folder / CONSOLES / console)
    guest.console = console
    try:
        return await _planned(asked, place, guest), guest
    except BaseException:
        await place.close(guest)
        raise


async def _planned(asked: Asked, place: Place, guest: SuiteGuest) -> SuiteRecord:
    found = await find_suite(guest, place.adapter, asked.name, asked.names)
    suite = in_order(select(found.suite, asked.selection, asked.times), asked)
    lacking = await lacking_programs(guest, suite, place.adapter)
    if lacking and not asked.allow_missing:
        raise UserError(refusal(lacking, who_lacks(asked.here)))
    record = SuiteRecord(
        name=asked.name,
        runner=place.adapter.runner,
        groups=suite.groups,
        runfiles=found.runfiles,
        testdir=place.adapter.testdir,
        tests=str(asked.tests.resolve()) if asked.tests is not None else None,
        absent=suite.absent,
        expectations=found.expectations,
        lacking=lacking,
        notes=suite.notes,
        quiet=suite.quiet,
        guests=asked.guests,
        cpus=asked.cpus,
        memory=asked.memory,
        scale=asked.scale,
        retries=asked.retries,
        environment=await environment_of(guest, place),
        zts=place.adapter.options if isinstance(place.adapter, Zts) else None,
        variables=dict(guest.variables),
        check=place.adapter.options if isinstance(place.adapter, Check | CheckFile) else None,
        adapter=place.adapter.name,
        seed=asked.seed,
        replayed=bool(asked.order),
        until_failure=asked.until_failure,
        iterations=asked.iterations,
        own=asked.own,
        here=await place.recorded(),
        kernel=asked.kernel,
        share=asked.selection.share,
    )
    write_suite_record(place.folder, record)
    return record


def refusal(lacking: Mapping[str, list[str]], who: str) -> str:
    each = "; ".join(f"{program}: {_some(tests)}" for program, tests in sorted(lacking.items()))
    return (
        f"{who} lacks programs that tests seem to call ({each}). Without them a test fails or, worse, "
        "passes: leave such tests out with --exclude, or run them all the same with --allow-missing"
    )


def _some(tests: list[str]) -> str:
    names = ["/".join(test.split("/")[-2:]) for test in tests[:3]]
    return ", ".join(names) + (f" and {len(tests) - 3} more" if len(tests) > 3 else "")
