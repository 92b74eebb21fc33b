"""The workload fio: what is written into its job files, what is refused, and that fio runs what is written."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from laboratory.samples import sample
from storlab.base.errors import UserError
from storlab.layers.resources import Dir, Disk, Resource
from storlab.nodes.kinds.local import local_node
from storlab.nodes.node import Node
from storlab.workloads.base import OptionError, RunContext, exit_bytes
from storlab.workloads.fio import options as fio_options
from storlab.workloads.fio.reach import complaint
from storlab.workloads.fio.workload import FioWorkload

GOLDEN = Path(__file__).parent / "golden"
CASES = json.loads(sample(__file__, "cases/fio.json"))


def fio(**options: Any) -> FioWorkload:
    return FioWorkload.model_validate(options)


def job_file(**files: str) -> FioWorkload:
    """A workload from native job files; the first is the one that it names."""
    name = next(iter(files)).replace("_", ".")
    given = {name.replace("_", "."): text for name, text in files.items()}
    return fio(job_file=name).resolve(given.__getitem__)


def refusal(**options: Any) -> OptionError:
    with pytest.raises(ValidationError) as raised:
        fio(**options)
    (detail,) = raised.value.errors()
    error = detail["ctx"]["error"]
    assert isinstance(error, OptionError)
    return error


def test_the_job_file_as_it_is_written() -> None:
    workload = fio(
        rw="randrw", bs="4k", rwmixread=70, time_based=True, group_reporting=False, rate_iops=[500, 1000],
        thinktime=0.00001, random_distribution="zipf:1.2", percentage_random=50.0, filename=["a", "b"],
        jobs={"log writer": {"rw": "write", "fsync": 1}, "reader.2": {"numjobs": 2, "stonewall": True}},
    )  # fmt: skip
    text = workload.job_text({"directory": "/mnt/x", "randseed": 7, "bs": "64k"}, "load")
    file = GOLDEN / "jobs.fio"
    if os.environ.get("STORLAB_UPDATE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text(), f"{file} differs; STORLAB_UPDATE_GOLDEN=1 writes it again"
    assert fio(rw="read").job_text({}, "load") == "[global]\nrw=read\n\n[load]\n", "without jobs, one"


@pytest.mark.parametrize(("options", "written"), CASES["sizes and durations"])
def test_sizes_and_durations_mean_to_fio_what_they_mean_to_the_plan(options: dict[str, Any], written: str) -> None:
    assert f"{written}\n" in "".join(f"{line}\n" for line in fio(rw="read", **options).job_text({}, "x").splitlines())


SCALARS = st.booleans() | st.integers(-(10**15), 10**15) | st.floats(-1e9, 1e9) | st.from_regex(r"[\w.:%/k-]{0,8}")
NAMES = st.from_regex(r"[a-z][a-z_]{2,6}", fullmatch=True).filter(lambda name: name not in ("jobs", "name", "output"))


@given(st.dictionaries(NAMES, SCALARS, max_size=4), st.dictionaries(NAMES, SCALARS, max_size=3))
def test_what_is_written_is_read_back_the_same(shared: dict[str, Any], own: dict[str, Any]) -> None:
    try:
        workload = fio(**shared, jobs={"one": own, "two": {}})
    except ValidationError:
        return
    jobs = fio_options.jobs_of(fio_options.sections_of(workload.job_text({}, "x")))
    assert [job.name for job in jobs] == ["one", "two"]
    assert jobs[0].options == {key: fio_options.text(value).strip() for key, value in {**shared, **own}.items()}
    assert not any("e" in text for text in map(fio_options.text, [1e-7, 1e9, 123456789.5]))


ASTRAY: list[dict[str, Any]] = [
    {"output": "x"}, {"output-format": "json"}, {"write_bw_log": "x"}, {"filename_format": "/x.$jobnum"},
    *({"filename": name} for name in ("/dev/sda", ["a", "/dev/sda"], "a:b:../c", "{target}/../c")),
    {"directory": "/tmp"}, {"directory": "sub"}, {"opendir": "/etc"}, {"replay_redirect": "/dev/sda"},
    {"bs": "4k\nfilename=/dev/sda"}, {"bs\nfilename": "x"}, {"bs": ["4k", "x\ny"]},
    {"description": "one; two"}, {"description": "no. #2"}, {"rate": float("nan")}, {"bs": "4k", "job_file": "x"},
    {"job_file": "x", "jobs": {"a": {}}}, {"jobs": {"a": {"filename": "/dev/sda"}}},
    *({"jobs": {name: {}}} for name in ("global", "a]\n[b", "")),
]  # fmt: skip
"""What leads away from the target, or from what Storlab reads; the first key, and those below it, are at fault."""


@pytest.mark.parametrize("options", ASTRAY, ids=str)
def test_what_leads_astray_is_refused_with_its_key(options: dict[str, Any]) -> None:
    path, below = [next(iter(options))], options
    while isinstance(below := below[path[-1]], dict) and below:
        path.append(next(iter(below)))
    assert refusal(**options).path == tuple(path)


def test_files_of_the_stack_may_be_named_and_the_logs_interval_is_the_studys_own_where_it_has_one() -> None:
    for path in ("a", "a/b", "a:b", r"a\:/b", "{target}", "{target}/a", "{target}/a:b", "..a", "a..b"):
        assert fio(filename=path, rw="read")
    assert job_file(x_fio="# filename=/dev/sda\n; output=x\n[a]\nrw=read # directory=/x\n")
    assert fio(rw="read", log_avg_msec=500)._log_interval() == 500
    assert job_file(x_fio="[a]\nlog_avg_msec=250\n")._log_interval() == 250
    assert (fio(runtime=5, time_based=1)._log_interval(), fio(rw="read")._log_interval()) == (100, 250)


@pytest.mark.parametrize(("lines", "says"), CASES["job files that lead astray"])
def test_a_job_file_that_leads_astray_is_refused(lines: str, says: str) -> None:
    with pytest.raises(OptionError) as raised:
        job_file(x_fio=lines)
    assert says in str(raised.value) and raised.value.path == ("job_file",)


def test_what_a_job_file_includes_is_put_in_and_one_that_includes_itself_is_refused() -> None:
    made = job_file(
        a_fio="[global]\ninclude b.fio\n[a]\nsize=1M\n", b_fio="# b\nrw=read\ninclude  c.fio \n", c_fio="bs=4k"
    )
    assert made._job_text == "[global]\n# b\nrw=read\nbs=4k\n[a]\nsize=1M\n"
    nested: list[str] = []

    def read(name: str) -> str:
        nested.append(name)
        return "include c.fio\n[a]\n" if name == "jobs/a.fio" else "rw=read\n"

    fio(job_file="jobs/a.fio").resolve(read)
    assert nested == ["jobs/a.fio", "jobs/c.fio"]
    with pytest.raises(OptionError, match=r"includes itself: a.fio → b.fio → a.fio"):
        job_file(a_fio="include b.fio\n", b_fio="include a.fio\n")


@pytest.mark.parametrize(("options", "size", "seconds"), CASES["sizes and lengths"])
def test_its_size_and_its_length_are_known_where_they_can_be(
    options: dict[str, Any], size: int, seconds: float | None
) -> None:
    assert (fio(**options).space(), fio(**options).duration(0)) == (size, seconds)
    lines = fio(**options).job_text({}, "x")
    assert (job_file(x_fio=lines).space(), job_file(x_fio=lines).duration(0)) == (size, seconds)


def test_with_a_warm_up_fio_does_not_measure_all_that_it_does() -> None:
    for options, warm_up, all_of_it in (
        ({}, 0.0, True),
        ({}, 1.0, False),
        ({"ramp_time": 0}, 1.0, True),
        ({"ramp_time": "2s"}, 0.0, False),
        ({"jobs": {"a": {}, "b": {"ramp_time": 1}}}, 0.0, False),
    ):
        assert fio(**options).measures_all(warm_up) is all_of_it
        assert job_file(x_fio=fio(**options).job_text({}, "x")).measures_all(warm_up) is all_of_it
    assert fio(runtime=5, time_based=1).duration(2) == 7, "it adds to the length"
    assert fio(runtime=5, time_based=1, ramp_time=1).duration(2) == 6, "but to a ramp of its own"


@pytest.mark.parametrize(("options", "warm_up", "said"), CASES["without effect"])
def test_a_depth_without_effect_and_a_warm_up_that_fio_would_pass_over_are_told_before_anything_runs(
    options: dict[str, Any], warm_up: float, said: str
) -> None:
    told = fio(rw="read", **options).leaves_out(warm_up)
    assert said in told and bool(told) == bool(said)


@pytest.mark.parametrize(
    ("options", "takes"),
    [
        ({"rw": "read"}, (Dir, Disk)), ({"filename": "{target}"}, (Dir, Disk)), ({"filename": "a"}, (Dir,)),
        ({"filename": "{target}/a"}, (Dir,)), ({"jobs": {"a": {"filename_format": "f.$jobnum"}}}, (Dir,)),
        ({"directory": "{target}/sub"}, (Dir,)),
    ],
)  # fmt: skip
def test_files_of_its_own_need_a_directory(options: dict[str, Any], takes: tuple[type[Resource], ...]) -> None:
    assert fio(**options).takes() == takes


def on_a_node(work: Any) -> Any:
    async def connected() -> Any:
        async with local_node("host") as node:
            return await work(node)

    return asyncio.run(connected())


def checked(*workloads: FioWorkload) -> list[str]:
    """What fio itself says of each, without running it."""

    async def check(node: Node) -> list[str]:
        said = []
        for workload in workloads:
            try:
                await workload.check_node(node)
                said.append("")
            except UserError as error:
                said.append(str(error))
        return said

    result: list[str] = on_a_node(check)
    return result


def test_fio_itself_says_which_options_it_takes_in_one_sentence() -> None:
    said = checked(
        fio(rw="randwrite", bs="4k", filename="{target}/a", ioengine="null"),
        fio(rw="read", jobs={"log writer": {"directory": "{target}"}, "b": {"filename_format": "f.$jobnum"}}),
        job_file(x_fio="[global]\nfilename={target}/{round}\n[a]\nrw=read\n"),
        fio(**{"rw": "write", "time-based": True}),
        job_file(x_fio="[a]\nrw=read\nss-dur=4s\n"),
        fio(rw="writ"),
        fio(rw="write", ioengine="dircreate"),
        fio(rw="write", iodepth=-1),
    )
    assert (said[:3], said[3]) == (["", "", ""], "fio knows no option time-based; did you mean time_based?")
    assert said[4].startswith("fio knows no option ss-dur") and "failed parsing rw=writ" in said[5]
    assert said[6].startswith("this fio has no ioengine dircreate; it has ")
    assert "iodepth: min value out of range" in said[7]
    assert all("\n" not in sentence for sentence in said)
    assert complaint("Bad option <bss=4k>\nDid you mean bs?\nfio: job global dropped\n") == (
        "fio knows no option bss; did you mean bs?"
    )
    assert (complaint("Bad option <x>\n"), complaint("")) == ("fio knows no option x", "")


def run(workload: FioWorkload, target: Resource, folder: Path) -> dict[str, float]:
    """One measured run, as a trial makes it; gives the metrics of all jobs together."""

    async def measured(node: Node) -> dict[str, float]:
        place = RunContext(
            node, target, str(folder), "load", 0.0, 7, {"target": getattr(target, "path", ""), "round": "3"}
        )
        await workload.prepare(place)
        launch = await workload.launch(place)
        ended = await node.run(launch.argv, cwd=launch.cwd, env=launch.env, check=False)
        (folder / "stderr").write_bytes(ended.stderr)
        (folder / "exit.json").write_bytes(exit_bytes(ended))
        rows = workload.parse(folder).metrics.rows(named=True)
        return {row["metric"]: row["value"] for row in rows if row["job"] is None}

    result: dict[str, float] = on_a_node(measured)
    return result


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    target, folder = tmp_path / "target", tmp_path / "folder"
    target.mkdir()
    folder.mkdir()
    return target, folder


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_job_file_runs_as_it_stands(places: tuple[Path, Path]) -> None:
    target, folder = places
    lines = "; mine\n[global]\nbs=4k\nrw=write\n\n[a]\nsize=64k\nfilename={target}/round-{round}\n"
    lines += "[b]\nstonewall\nsize=32k\n"
    metrics = run(job_file(x_fio=lines), Dir("host", str(target)), folder)
    assert (metrics["write.ios"], files_in(target)) == (24, ["b.0.0", "round-3"])
    assert (folder / "job.fio").read_text() == lines.replace("{target}/round-{round}", "round-3")


def test_a_table_runs_in_the_directory_and_nowhere_else_and_the_null_engine_touches_no_disk(
    places: tuple[Path, Path],
) -> None:
    target, folder = places
    metrics = run(
        fio(rw="randread", size="1M", ioengine="null"), Disk("host", str(target / "disk"), 2**20, True), folder
    )
    assert (metrics["read.ios"], files_in(target)) == (256, [])
    target, folder = places
    workload = fio(rw="write", size="1M", bs="64k", jobs={"log writer": {}, "two": {"filename": "{target}/a:b"}})
    metrics = run(workload, Dir("host", str(target)), folder)
    assert (metrics["write.ios"], files_in(target)) == (32, ["a", "b", "log writer.0.0"])
