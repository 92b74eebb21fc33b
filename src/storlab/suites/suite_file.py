"""A suite as its author writes it in TOML: groups of tests, what is around them, and what guests have for them."""

from __future__ import annotations

import posixpath
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    Strict,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

from storlab.base.reach import Beside, Choice, InGuest, OwnName, Prose, ReadsFile, Variable
from storlab.base.units import Duration, GuestMemory, Size
from storlab.model import Model

AdapterName = Literal["command", "zts", "ktap", "check"]
_MOST_TIMEOUT = 30 * 24 * 3600  # s
_LONGEST_NAME = 1024  # characters


def _as_name(value: str) -> str:
    if not value or "\n" in value or len(value) > _LONGEST_NAME:
        raise ValueError(f"{value[:50]!r} is not a valid name: write one line with up to {_LONGEST_NAME} characters")
    return value


def _as_time_out(value: float) -> float:
    if not 0 <= value <= _MOST_TIMEOUT:
        raise ValueError("a time-out has at most 30 days; 0 is for none")
    return value


def _as_test(value: str) -> str:
    if value.startswith("/") or ".." in value.split("/"):
        raise ValueError(f"{value[:50]!r} leads out of the group's folder: write a path within it")
    return value


def _as_folder(value: str) -> str:
    if value.startswith("/") or posixpath.normpath(value).startswith(".."):
        raise ValueError(f"{value[:50]!r} leads out of the suite's folder: write a path within it")
    return value


Name = Annotated[OwnName, AfterValidator(_as_name)]
TestName = Annotated[Name, AfterValidator(_as_test)]
Limit = Annotated[Duration, AfterValidator(_as_time_out)]
Count = Annotated[int, Strict()]


class CommandLine(Model):
    """A test that is a command line and no file."""

    name: TestName = Field(description="what the test is called")
    run: InGuest = Field(min_length=1, description="what a shell executes, in the group's folder where there is one")


def _kind_of(test: object) -> str:
    return "table" if isinstance(test, dict | CommandLine) else "str"


Test = Annotated[
    Annotated[TestName, Tag("str")] | Annotated[CommandLine, Tag("table")], Discriminator(_kind_of)
]  # so that what is wrong is said of the kind that was meant


class Around(Model):
    """What groups may have, or inherit from ``defaults``; an empty text is for none."""

    pre: InGuest | None = Field(
        None, description="a file that runs before the tests, which are skipped unless it passes"
    )
    post: InGuest | None = Field(None, description="a file that runs after the tests, whatever their outcome")
    failsafe: InGuest | None = Field(None, description="a file below `folder` that runs after a test that was killed")
    user: InGuest | None = Field(None, description="who runs the tests: a user of the guest, `root` by default")
    pre_user: InGuest | None = Field(None, description="who runs `pre`: `root` by default")
    post_user: InGuest | None = Field(None, description="who runs `post`: `root` by default")
    failsafe_user: InGuest | None = Field(None, description="who runs `failsafe`: `root` by default")
    timeout: Limit | None = Field(None, description="of each script: 60 s by default; 0 for as long as it takes")
    tags: list[Name] | None = Field(None, description="words that `--tags` chooses by")


class GroupTable(Around):
    """One group. Its tests run one after another, in this order, in one guest."""

    tests: list[Test] = Field(
        min_length=1, description="executable files in the group's folder, or tables with `name` and `run`"
    )
    folder: Beside | None = Field(
        None, description="where its files are, below the suite's `folder`: by default its name"
    )

    @field_validator("folder")
    @classmethod
    def _within(cls, folder: str | None) -> str | None:
        return folder if folder is None else _as_folder(folder)

    @field_validator("tests")
    @classmethod
    def _each_once(cls, tests: list[str | CommandLine]) -> list[str | CommandLine]:
        names = [test if isinstance(test, str) else test.name for test in tests]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"test {twice!r} is listed twice")
        return tests


MEMORY = 4 * 1024**3
"""Of a guest, in bytes: one of ZTS's tests wants a RAM disk of 1 GiB, and one ends for want of memory with 2 GiB."""

CPUS = 2
"""Of a guest: two of ZTS's tests fail or hang with one, and races need two."""


class Guests(Model):
    """What each guest has."""

    memory: GuestMemory = Field(MEMORY, description="memory; `--memory` overrides it")
    cpus: Count = Field(CPUS, ge=1, le=255, description="virtual CPUs; `--cpus` overrides it")
    disks: Count = Field(3, ge=0, le=20, description="empty disks for the tests, named in `$DISKS`")
    disk_size: Size = Field(
        4 * 1024**3, ge=1024**2, description="size of each; takes up space here only as it is written"
    )
    space: Size = Field(16 * 1024**3, ge=64 * 1024**2, description="size of the file system in `/var/tmp`")
    modules: list[Name] = Field([], description="kernel modules that are loaded first, such as `zfs`")
    kernel: ReadsFile | None = Field(
        None, description="your own kernel, a bzImage or vmlinux, from this file's folder; `--kernel` takes precedence"
    )
    kernel_modules: ReadsFile | None = Field(None, description="its modules: `…/lib/modules/RELEASE`")
    rootfs: ReadsFile | None = Field(
        None, description="a root for it, as a folder or an image with EROFS, ext4 or squashfs; by default the image's"
    )
    programs: list[Name] = Field([], description="programs without which the suite is refused")

    @model_validator(mode="after")
    def _with_a_kernel(self) -> Self:
        named = next((key for key in ("kernel_modules", "rootfs") if getattr(self, key) is not None), None)
        if named is not None and self.kernel is None:
            raise ValueError(f"{named} goes with a kernel of your own: write kernel, too")
        return self


class CheckTable(Model):
    """Which tests of a checkout of xfstests or blktests are run, and how: as the options of its own ``check`` say."""

    tests: list[Name] = Field(
        [], description="such as `generic/001`; these and those of `groups`, all if there is neither"
    )
    groups: list[Name] = Field([], description="tests of these groups, as with `-g`")
    exclude: list[Name] = Field([], description="not these tests, as with `-e`")
    exclude_groups: list[Name] = Field([], description="no tests of these groups, as with `-x`")
    exclude_files: list[ReadsFile] = Field([], description="not the tests in these files beside this one, as with `-E`")
    exclude_lists: list[Name] = Field([], description="nor those in files of this name beside the tests, as with `-X`")
    section: InGuest = Field("", description="of the checkout's `local.config`, as with `-s`")
    fstyp: Choice = Field("ext4", pattern=r"^[A-Za-z0-9]+$", description="what `TEST_DEV` is formatted with")
    timeout: Limit = Field(600.0, description="of each test; 0 for as long as it takes")


_DISKS_OF_CHECK = 3
_NOT_OF_CHECK = ("groups", "defaults", "skip")


class SuiteFile(Model):
    """The whole file."""

    title: Prose = Field("", description="what the suite is about")
    adapter: AdapterName = Field("command", description="how scripts are run and judged")
    folder: ReadsFile | None = Field(
        None,
        validate_default=True,
        description="a folder, from that of this file, which is copied into each guest; for `check`, the checkout",
    )
    check: CheckTable | None = Field(None, description="for the adapter `check`: what is run of the checkout")
    environment: dict[Variable, Variable] = Field({}, description="variables for all scripts")
    skip: list[Count] = Field([4, 77], description="exit statuses that mean SKIP; 0 means PASS, all others FAIL")
    guests: Guests = Field(default_factory=Guests, description="what each guest has")
    defaults: Around = Field(default_factory=Around, description="what all groups have that don't say otherwise")
    groups: dict[Name, GroupTable] = Field(description="the groups, by name; at least one, except with `check`")

    @model_validator(mode="before")
    @classmethod
    def _groups_of_a_checkout(cls, raw: Any) -> Any:
        own = isinstance(raw, dict) and raw.get("adapter") == "check" and "groups" not in raw
        return {**raw, "groups": {}} if own else raw

    @field_validator("folder")
    @classmethod
    def _checkout(cls, folder: str | None, info: ValidationInfo) -> str | None:
        if folder is None and info.data.get("adapter") == "check":
            raise ValueError("name the checkout: a folder that has `check` and `tests`")
        return folder

    @field_validator("check")
    @classmethod
    def _only_for_check(cls, check: CheckTable | None, info: ValidationInfo) -> CheckTable | None:
        if info.data.get("adapter") not in ("check", None):
            raise ValueError('this table is for adapter = "check"')
        return check

    @field_validator(*_NOT_OF_CHECK)
    @classmethod
    def _not_for_check(cls, value: Any, info: ValidationInfo) -> Any:
        adapter = info.data.get("adapter")
        if adapter == "check" and value:
            raise ValueError('a checkout has its own: write what is to be run into the table "check"')
        if adapter != "check" and info.field_name == "groups" and not value:
            raise ValueError("name at least one group")
        return value

    @field_validator("guests")
    @classmethod
    def _disks_of_a_checkout(cls, guests: Guests, info: ValidationInfo) -> Guests:
        if info.data.get("adapter") == "check" and guests.disks != _DISKS_OF_CHECK:
            raise ValueError("tests of a checkout have three disks: TEST_DEV, SCRATCH_DEV and TEST_DEVS")
        return guests

    @field_validator("groups")
    @classmethod
    def _in_the_folder(cls, groups: dict[str, GroupTable]) -> dict[str, GroupTable]:
        for name, group in groups.items():
            _as_folder(name if group.folder is None else group.folder)
        return groups

    @field_validator("environment")
    @classmethod
    def _names_of_variables(cls, environment: dict[str, str]) -> dict[str, str]:
        for name in environment:
            if not name or "=" in name:
                raise ValueError(f"{name!r} can't be the name of a variable")
        return environment

    def folder_of(self, name: str) -> str:
        written = self.groups[name].folder
        return posixpath.normpath(name if written is None else written)
