"""``storlab import`` of kdevops' folders of results: hosts, by their names and what lies beside, tell set-ups apart."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from importing import taken as imported
from storlab import open_run
from study.program import call

IMPORTS = Path(__file__).parent.parent.parent / "examples" / "imports"
XFS, EXT4 = "kdevops-xfs-reflink-16k", "kdevops-ext4-4k-bigalloc-16k"

pytestmark = pytest.mark.usefixtures("here")


def sysbench_host(results: str, host: str, rate: int = 5000, kernel: str = "6.12.0", **files: str) -> Path:
    """What the sysbench workflow keeps of a host; ``files``: others of one line, by name without ``.txt``."""
    folder = Path(results) / host
    folder.mkdir(parents=True)
    of_host = sum(host.encode()) % 100  # so that none is a copy of another's
    rest = "qps: 90.00 (r/w/o: 60.00/20.00/10.00) lat (ms,95%): 120.00 err/s: 0.00 reconn/s: 0.00"
    lines = [f"[ {2 * at}s ] thds: 512 tps: {rate + at * at % 7}.{of_host:02} {rest}" for at in range(1, 13)]
    head = "sysbench 1.0.20 (using system LuaJIT)\n\nNumber of threads: 512\nThreads started!\n\n"
    (folder / "sysbench_tps.txt").write_text("\n".join([head, *lines, ""]))
    (folder / "sysbench_populate.txt").write_text(head)
    files = {"innodb_doublewrite": "0" if host.endswith("-dev") else "1", "innodb_page_size": "16384", **files}
    for name, text in files.items():
        (folder / f"{name}.txt").write_text(f"{text}\n")
    if kernel:
        (folder / "dmesg.txt").write_text(f"Nov 28 12:00:00 {host} kernel: Linux version {kernel} (gcc) #1\nmore\n")
    return folder


def fio_host(results: str, host: str, jobs: Sequence[str] = ("randread_bs4k_iodepth1_jobs1",)) -> Path:
    folder = Path(results) / host / f"fio-tests-results-{host}"
    (folder / "jobs").mkdir(parents=True)
    for number, job in enumerate(jobs):
        (folder / "jobs" / f"{job}.ini").write_text(f"[{job}]\n")
        text = (IMPORTS / "fio.json").read_text() + "\n" * (number + len(host))  # no copy of another's
        (folder / f"results_{job}.json").write_text(text)
        (folder / f"results_{job}.txt").write_text(f"{job}: (groupid=0, jobs=1): err= 0: pid=1\n")
    return folder


def factors(run: str = "run") -> dict[str, list[str]]:
    trials = open_run(run).trials
    names = [name for name in trials.columns if name.startswith("factor.")]
    return {name.removeprefix("factor."): trials[name].to_list() for name in names}


def refused(*words: str) -> str:
    ran = call("import", *words, "--out", "run")
    assert (ran.status, Path("run").exists()) == (2, False)
    return ran.message


@pytest.mark.parametrize("path", ["kdevops", "kdevops/workflows/sysbench/results"])
def test_hosts_of_the_sysbench_workflow_differ_in_file_system_and_doublewrite(path: str) -> None:
    for host in (XFS, f"{XFS}-dev", EXT4, f"{EXT4}-dev"):
        sysbench_host("kdevops/workflows/sysbench/results", host)
    ran = imported("sysbench", path)
    assert factors() == {"fs": ["ext4-4k-bigalloc-16k"] * 2 + ["xfs-reflink-16k"] * 2, "doublewrite": ["on", "off"] * 2}
    assert "innodb_doublewrite.txt" not in ran.message and "sysbench_populate.txt" in ran.message
    assert call("import", path).output.startswith(f"{path}: recognised as sysbench")


def test_kernels_of_two_folders_are_levels_and_the_same_host_again_is_a_round() -> None:
    for number, (results, kernel) in enumerate((("a", "6.11.0"), ("b", "6.12.0-rc1"), ("c", "6.12.0-rc1"))):
        for host in (XFS, f"{XFS}-dev"):
            sysbench_host(results, host, 5000 + number, kernel)
    imported("sysbench", "a", "b", "c")
    kernels = ["6.11.0"] * 2 + ["6.12.0-rc1"] * 4
    assert factors() == {"doublewrite": ["on", "off"] * 3, "kernel": kernels}
    assert open_run("run").trials["round"].to_list() == [1, 1, 1, 1, 2, 2]


def test_what_follows_from_other_factors_is_none_and_is_said() -> None:
    sysbench_host("results", XFS, kernel="6.11.0")
    sysbench_host("results", EXT4, kernel="6.12.0", innodb_page_size="4096")
    ran = imported("sysbench", "results")
    assert factors() == {"fs": ["ext4-4k-bigalloc-16k", "xfs-reflink-16k"]}
    assert "Set-ups differ in page_size as well (ext4-4k-bigalloc-16k: 4k; xfs-reflink-16k: 16k)." in ran.message
    assert "Set-ups differ in kernel as well (ext4-4k-bigalloc-16k: 6.12.0; xfs-reflink-16k: 6.11.0)." in ran.message


def test_postgresql_has_a_switch_of_its_own_and_hosts_alike_are_told_apart_by_their_names() -> None:
    for host, switch in (("a-xfs-4k", "on"), ("a-xfs-4k-dev", "off"), ("b-xfs-4k", "on")):
        folder = sysbench_host("results", host, kernel="", full_page_writes=switch, postgresql_blocksize="8192")
        for name in ("innodb_doublewrite", "innodb_page_size"):
            (folder / f"{name}.txt").unlink()
    Path("results/a-xfs-4k-ab").mkdir()
    Path("results/a-xfs-4k-ab/last-kernel.txt").write_text("6.14.0\n")
    imported("sysbench", "results")
    found = factors()
    assert found["full_page_writes"] == ["on", "off", "on"] and found["kernel"] == ["6.14.0", "6.14.0", "–"]


def test_a_host_or_a_file_of_one_is_known_alone_and_a_kernel_of_the_whole_folder_is_said_to_be_that() -> None:
    folder = sysbench_host("results", XFS)
    for number, path in enumerate((folder, folder / "sysbench_tps.txt")):
        imported("sysbench", str(path), out=f"run-{number}")
        assert factors(f"run-{number}") == {"host": [XFS]}
    for host in (XFS, EXT4):
        sysbench_host("more", host, kernel="")
    Path("more/last-kernel.txt").write_text("6.12.0\n")
    assert (
        "The kernel is from last-kernel.txt, which kdevops writes for one host only"
        in imported("sysbench", "more").message
    )


def test_the_users_own_factor_counts_and_one_of_kdevops_is_refused() -> None:
    for results in ("a", "b"):
        sysbench_host(results, XFS, 5000 + ord(results), kernel="")
    imported("sysbench", "a", "b", "--factor", "disk=nvme,loop", out="own")
    assert factors("own")["disk"] == ["nvme", "loop"]
    sysbench_host("a", EXT4, kernel="")
    said = refused("sysbench", "a", "b", "--factor", "fs=x,y")
    assert "--factor fs: for " in said and "choose another name" in said


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("innodb_doublewrite", "2", "'2' is not 0 or 1"),
        ("innodb_page_size", "big", "'big' is not a number of bytes"),
        ("full_page_writes", "", "'' is not on or off"),
        ("last-kernel", "6.12 and more", "'6.12 and more' is not a kernel's release"),
    ],
)
def test_a_file_of_a_host_that_says_nothing_sensible_is_named_with_its_line(name: str, text: str, said: str) -> None:
    (sysbench_host("results", XFS, kernel="") / f"{name}.txt").write_text(f"{text}\n")
    assert f"results/{XFS}/{name}.txt, line 1: {said}" in refused("sysbench", "results")


def test_files_from_elsewhere_are_not_mixed_in_and_a_name_alone_makes_no_folder_of_kdevops() -> None:
    folder = sysbench_host("results", XFS)
    shutil.copy(IMPORTS / "sysbench-sync.txt", "other.txt")
    assert "other.txt is not in a result folder of kdevops" in refused("sysbench", str(folder), "other.txt")
    Path("own-xfs").mkdir()
    shutil.copy(IMPORTS / "sysbench-sync.txt", "own-xfs/sysbench_tps.txt")
    imported("sysbench", "own-xfs")
    assert factors() == {"file": ["sysbench_tps"]}


def test_hosts_are_not_taken_for_one_by_the_end_of_long_names_and_one_without_a_result_is_named() -> None:
    for number in (1, 2):
        sysbench_host("results", f"{number}-{'a' * 60}-xfs")
    assert "no host's name has more than 63 characters: rename this folder" in refused("sysbench", "results")
    sysbench_host("more", XFS)
    (sysbench_host("more", f"{XFS}-dev") / "sysbench_tps.txt").unlink()
    ran = imported("sysbench", "more")
    assert f"more/{XFS}-dev: it has settings of a run but no result: the run did not finish" in ran.message


def test_hosts_of_the_fio_workflow_differ_in_file_system_and_node_beside_the_options_of_jobs() -> None:
    for host in ("demo-fio-tests-xfs-16k", "demo-fio-tests-xfs-16k-dev", "demo-fio-tests-ext4-bigalloc"):
        fio_host("results", host)
    ran = imported("fio", "results")
    found = factors()
    assert list(found) == ["fs", "node", "bs"]
    assert dict.fromkeys(zip(found["fs"], found["node"], strict=True)).keys() == {
        ("ext4-bigalloc", "baseline"),
        ("xfs-16k", "baseline"),
        ("xfs-16k", "dev"),
    }
    assert "results_randread_bs4k_iodepth1_jobs1.txt" in ran.message


def test_a_folder_that_has_no_job_files_is_fios_as_any() -> None:
    shutil.rmtree(fio_host("results", "demo-fio-tests-xfs-16k") / "jobs")
    Path("results/demo-fio-tests-xfs-16k/fio-tests-results-demo-fio-tests-xfs-16k").joinpath(
        "results_randread_bs4k_iodepth1_jobs1.txt"
    ).unlink()
    imported("fio", "results")
    assert list(factors()) == ["bs"]


def test_whiskers_of_an_import_decide_what_is_an_outlier_and_stay_with_the_run() -> None:
    folder = sysbench_host("results", XFS)
    text = (folder / "sysbench_tps.txt").read_text()
    (folder / "sysbench_tps.txt").write_text(text.replace("tps: 5001.", "tps: 5020.", 1))
    counts = []
    for whiskers in ("1.5", "40"):
        imported("sysbench", str(folder), "--whiskers", whiskers, out=f"run-{whiskers}")
        shutil.rmtree(Path(f"run-{whiskers}") / "derived", ignore_errors=True)
        counts += open_run(f"run-{whiskers}").metrics.filter(metric="tps.outliers")["value"].unique().to_list()
        assert f"outliers beyond {whiskers} IQR" in " ".join(call("report", f"run-{whiskers}").output.split())
    assert counts == [1.0, 0.0]
    assert "--whiskers" in refused("sysbench", str(folder), "--whiskers", "0")
