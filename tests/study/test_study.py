"""What a study comes to: factors, cells, notes, --set and --only, and what the levels of a factor change."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laboratory.studies import parsed
from storlab.base.errors import StudyError, UserError
from storlab.cli.plan.tables import differences
from storlab.layers.base import Layer
from storlab.layers.fs.files import FileLayer
from storlab.study.cells import Cell
from storlab.study.overrides import apply_override
from storlab.study.study import Study, load_study, parse_study, shipped_studies

HEAD = 'title = "x"\nstack = [{ layer = "directory" }]\n'
LOAD = '[workload.load]\nfio = { rw = "write", size = "1M" }\n'


def layers(cell: Cell, group: str) -> tuple[Layer, ...]:
    chain = cell.chain(group)
    assert chain is not None
    return chain.layers


def study(text: str, *overrides: str, only: tuple[str, ...] = ()) -> Study:
    whole = text if "title" in text else HEAD + text
    return parsed(whole if "[workload" in whole else whole + LOAD, *overrides, only=only)


def labels(made: Study) -> dict[str, list[str]]:
    return {factor.name: [level.label for level in factor.levels] for factor in made.factors}


def test_cells_are_all_combinations_the_last_factor_first_and_without_factors_there_is_one() -> None:
    made = study('[factors.a]\nlevels = [1, 2]\n[factors]\nb = ["x", "y", "z"]\n')
    assert [tuple(cell.levels.values()) for cell in made.cells][:4] == [("1", "x"), ("1", "y"), ("1", "z"), ("2", "x")]
    assert [cell.number for cell in made.cells] == [1, 2, 3, 4, 5, 6]
    (cell,) = study("").cells
    assert cell.levels == {}
    assert [load.name for load in cell.loads] == ["load"]
    assert list(cell.probes) == ["host-load", "stalls", "processes"]
    assert layers(cell, "host")[0].layer == "directory"


def test_levels_go_by_the_names_that_are_written() -> None:
    made = study('[factors.a]\nlevels = [4096, 65536, 100, 5000, true, 0.5, "x y"]\n')
    assert labels(made) == {"a": ["4096", "65536", "100", "5000", "true", "0.5", "x y"]}


def test_two_names_for_one_stack_are_a_comparison_of_a_thing_with_itself() -> None:
    made = study(
        'title = "x"\nstack = "{dir}"\n[factors.dir]\na = { layer = "directory" }\nb = [{ layer = "directory" }]\n'
        'c = { layer = "directory" }\n'
    )
    assert len(made.cells) == 3
    assert layers(made.cells[0], "host") == layers(made.cells[1], "host") == layers(made.cells[2], "host")
    assert made.notes == ()


def test_what_nothing_uses_is_noted() -> None:
    made = study('[factors.a]\nlevels = [1, 2]\n[parameters]\np = 1\n[trial]\nworkloads = ["load"]\n[workload.spare]\n'
                 'fio = { rw = "read" }\n' + LOAD)  # fmt: skip
    assert [note.partition(":")[0] for note in made.notes] == [
        "the factor a is used nowhere",
        "the parameter p is used nowhere",
        "the workload spare is run in no cell",
    ]


def test_factors_reach_every_part_of_a_cell() -> None:
    made = study(
        'title = "x"\nstack = [{ layer = "file", size = "{size}" }, { layer = "loop", direct_io = "{dio}" }]\n'
        "[factors]\nsize = ['8M', '16M']\ndio = [true, false]\nload = ['one', 'two']\nnodes = [1, 3]\n"
        '[nodes.many]\ncount = "{nodes}"\n[probes.stalls]\nthreshold = "{size}"\n'
        '[trial]\nworkloads = ["{load}"]\nwarm_up = "{nodes}s"\ntimeout = "1m"\nverify = [["ls", "{target}/{size}"]]\n'
        'timeouts = [{ where = { nodes = 3 }, timeout = "1h" }]\n'
        '[workload.one]\nfio = { rw = "write" }\n[workload.two]\non = ["many"]\nfio = { rw = "read" }\n',
        "probes.stalls.threshold=2s",
    )
    assert len(made.cells) == 16
    last = made.cells[-1]
    lowest = layers(last, "many")[0]
    assert isinstance(lowest, FileLayer) and lowest.size == 16 * 1024**2
    assert last.nodes["many"].count == 3 and last.loads[0].name == "two"
    assert (last.timeout, made.cells[0].timeout) == (3600, 60)
    assert last.trial.warm_up == 3 and last.trial.verify == (("ls", "{target}/16M"),)
    chain = last.chain("many")
    assert chain is not None and [link.origin for link in chain.links] == [("stack", 0), ("stack", 1)]


@pytest.mark.parametrize("name", shipped_studies())
def test_a_shipped_study_loads_without_a_note(name: str) -> None:
    made = load_study(shipped_studies()[name])
    assert made.cells and not made.notes


def test_set_changes_parameters_keys_and_elements_of_lists() -> None:
    text = (
        'title = "x"\nstack = [{ layer = "file", size = "{p}" }, { layer = "loop" }]\n[parameters]\np = "1M"\n'
        '[workload."a.b"]\nfio = { rw = "write" }\n'
    )
    made = study(
        text, "p=2M", "title=New = title", "repeat.max=7", "stack.1.sector_size=4k", 'workload."a.b".fio.bs=8k',
        'trial.settle={ sync = false }', "description=1.5 # not a comment",
    )  # fmt: skip
    lowest, loop = layers(made.cells[0], "host")
    assert (lowest.label(), loop.sector_size) == ("file 2M", 4096)  # type: ignore[attr-defined]
    assert made.model.title == "New = title" and made.model.repeat.max == 7 and not made.cells[0].trial.settle.sync
    assert made.model.description == "1.5 # not a comment"
    assert made.overrides[0] == "p=2M"


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("p", "write PATH=VALUE, such as --set repeat.max=10"),
        ("=5", "write PATH=VALUE"),
        ("a..b=5", "write PATH=VALUE"),
        ("a b=5", "write PATH=VALUE"),
        ('"=5', "write PATH=VALUE"),
        ("x\ny=5", "write PATH=VALUE"),
        ("seze=5", "the study has no parameter 'seze'; did you mean 'size'?"),
        ("workloads.load=5", "the study has no key 'workloads'; did you mean 'workload'?"),
        ("stack.1.size=5", "stack is a list; write a number from 0 to 0 instead of '1'"),
        ("stack.x=5", "stack is a list; write a number from 0 to 0 instead of 'x'"),
        ("stack.-1=5", "stack is a list"),
        ("title.x=5", "title is not a table, so it has no x"),
        ("title.x.y=5", "title is not a table, so it has no x"),
    ],
)
def test_set_says_what_is_wrong_with_a_path(override: str, says: str) -> None:
    with pytest.raises(UserError) as raised:
        study("[parameters]\nsize = 1\n", override)
    assert str(raised.value).startswith(f"--set {override}: ") and says in str(raised.value)


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("repeat.max=many", 's.toml: --set repeat.max=many: "many" should be a whole number'),
        ("repeat.mx=3", "s.toml: --set repeat.mx=3: this key is unknown; did you mean 'max'?"),
        ("stack=[]", "s.toml: --set stack=[]: [] is not a stack"),
        ("parameters=5", "s.toml: --set parameters=5: 5 should be a table"),
        ("workload.load.fio.output=x", 's.toml: --set workload.load.fio.output=x: "output" is Storlab\'s own'),
    ],
)
def test_what_set_brings_in_is_told_as_such(override: str, says: str) -> None:
    with pytest.raises(StudyError) as raised:
        study("", override)
    assert str(raised.value).startswith(says)


def test_a_study_whose_set_made_it_so_tells_that_later_too() -> None:
    made = study("", 'stack=[{ layer = "directory", path = "/nowhere" }]')
    assert str(made.problem(("stack", 0), "no such thing")).startswith("s.toml: --set stack=[{")


@given(st.text(max_size=12), st.text(max_size=6))
def test_any_override_is_taken_or_refused(path: str, value: str) -> None:
    raw: dict[str, object] = {"title": "x", "stack": [{"layer": "directory"}], "parameters": {"a": 1}}
    try:
        apply_override(raw, f"{path}={value}")
    except UserError as error:
        assert str(error).startswith("--set ")


FACTORS = '[factors]\na = ["x", "y", "z"]\nb = ["p,q", "p", "q"]\n'


@pytest.mark.parametrize(
    ("only", "left"),
    [
        (("a=x",), {"a": ["x"], "b": ["p,q", "p", "q"]}),
        (("a=z,x",), {"a": ["x", "z"], "b": ["p,q", "p", "q"]}),
        (("a=x", "a=y", "b=q"), {"a": ["x", "y"], "b": ["q"]}),
        (("b=p,q",), {"a": ["x", "y", "z"], "b": ["p,q"]}),
        (("b=q,p",), {"a": ["x", "y", "z"], "b": ["p", "q"]}),
        ((" a = x , y ",), {"a": ["x", "y"], "b": ["p,q", "p", "q"]}),
    ],
)
def test_only_keeps_the_levels_that_were_asked_for(only: tuple[str, ...], left: dict[str, list[str]]) -> None:
    made = study(FACTORS, only=only)
    assert labels(made) == left and len(made.cells) == len(left["a"]) * len(left["b"])


@pytest.mark.parametrize(
    ("only", "says"),
    [
        ("a", "write FACTOR=LEVEL[,LEVEL]"),
        ("a=", "write FACTOR=LEVEL[,LEVEL]"),
        ("c=x", "the study has no factor 'c'; it has a, b"),
        ("a=w", "a has no level 'w'; it has x, y, z"),
        ("a=x,w", "a has no level 'w'"),
        ("a=x;y", "a has no level 'x;y'"),
    ],
)
def test_only_says_what_is_wrong(only: str, says: str) -> None:
    with pytest.raises(UserError) as raised:
        study(FACTORS, only=(only,))
    assert str(raised.value).startswith(f"--only {only}: ") and says in str(raised.value)


def test_comparisons_and_time_outs_may_name_levels_that_only_leaves_out_and_numbers() -> None:
    rules = '[[compare]]\npairs = [["x", "y"]]\n[trial]\ntimeouts = [{ where = { a = "z" }, timeout = 5 }]\n'
    assert len(study(FACTORS + rules, only=("a=x", "b=p")).cells) == 1
    made = study("[factors]\njobs = [1, 4096]\n[[compare]]\npairs = [[1, 4096]]\n")
    assert made.model.compare[0].pairs == (("1", "4096"),)


def test_files_that_a_study_names_are_remembered(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "a.fio").write_text("[global]\ninclude b.fio\n[a]\n")
    (tmp_path / "jobs" / "b.fio").write_text("rw=write\nsize=1M\n")
    (tmp_path / "s.toml").write_text(HEAD + '[workload.load]\nfio = { job_file = "jobs/a.fio" }\n')
    made = load_study(tmp_path / "s.toml")
    assert dict(made.inputs) == {"jobs/a.fio": "[global]\ninclude b.fio\n[a]\n", "jobs/b.fio": "rw=write\nsize=1M\n"}
    again = parse_study(made.text.encode(), made.file, made.inputs.__getitem__)
    assert again.cells == made.cells


WRITE = 'title = "A"\n[workload.w]\nfio = { rw = "write", bs = "4k", size = "1M" }\n'
MOUNTED = '[{ layer = "file", size = "512M" }, { layer = "loop" }, "{fs}", { layer = "mount", options = "{how}" }]'


def changed(folder: Path, text: str) -> dict[str, dict[str, dict[str, str]]]:
    path = folder / "study.toml"
    path.write_text(text)
    levels: dict[str, dict[str, dict[str, str]]] = {}
    for each in differences(load_study(path).cells):
        levels.setdefault(each.factor, {})[each.level] = dict(each.settings)
    return levels


def test_of_keys_of_layers_and_options_of_mounts_only_what_differs_is_named(tmp_path: Path) -> None:
    text = f"stack = {MOUNTED}\n{WRITE}"
    text += '[factors.fs]\next4 = { layer = "mkfs", type = "ext4" }\n'
    text += 'xfs-16k = { layer = "mkfs", type = "xfs", block_size = "16k" }\n'
    text += '[factors]\nhow = ["noatime,nodiratime", "noatime,sync"]\n'
    assert changed(tmp_path, text) == {
        "fs": {"ext4": {"mkfs.type": "ext4"}, "xfs-16k": {"mkfs.type": "xfs", "mkfs.block_size": "16k"}},
        "how": {"noatime,nodiratime": {"mount.options": "nodiratime"}, "noatime,sync": {"mount.options": "sync"}},
    }


def test_a_level_with_other_layers_has_its_stack_and_what_the_study_sets_of_them(tmp_path: Path) -> None:
    text = 'stack = ["{below}", { layer = "loop" }, { layer = "mkfs", type = "xfs" }, { layer = "mount" }]\n' + WRITE
    text += '[factors.below]\nfile = { layer = "file", size = "1G" }\n'
    text += 'device = { layer = "device", path = "/dev/vdz" }\n'
    text = text.replace('{ layer = "loop" }, ', "").replace(
        '{ layer = "file", size = "1G" }', '[{ layer = "file", size = "1G" }, { layer = "loop" }]'
    )
    levels = changed(tmp_path, text)["below"]
    assert levels["file"] == {"stack": "file → loop → mkfs → mount", "file.size": "1G"}
    assert levels["device"] == {"stack": "device → mkfs → mount", "device.path": "/dev/vdz"}


def test_an_option_that_a_level_leaves_out_is_at_its_default_and_unused_levels_change_nothing(tmp_path: Path) -> None:
    text = 'stack = [{ layer = "file", size = "512M" }, { layer = "loop" }, "{fs}", { layer = "mount" }]\n' + WRITE
    text += '[factors.fs]\nplain = { layer = "mkfs", type = "ext4" }\n'
    text += 'large = { layer = "mkfs", type = "ext4", cluster_size = "64k" }\n'
    assert changed(tmp_path, text)["fs"] == {
        "plain": {"mkfs.cluster_size": "default"},
        "large": {"mkfs.cluster_size": "64k"},
    }
    text = f'stack = [{{ layer = "directory" }}]\n{WRITE}[factors]\nspare = ["a", "b"]\nbs = ["4k"]\n'
    assert changed(tmp_path, text) == {"spare": {"a": {}, "b": {}}}


def test_of_a_table_only_what_is_no_default_is_named_and_a_probe_is_not_the_layer_of_its_name() -> None:
    cells = load_study(shipped_studies()["vm-backing"]).cells
    levels = {each.level: each.settings for each in differences(cells)}
    assert levels["zvol-clone"]["zvol.base"] == levels["file-on-zfs"]["image-copy.base"] == "size 64M, written 2M"
    assert levels["file-on-zfs"].keys() == {"vm: stack", "image-copy.base"}, "and not how long the layer zfs is kept"
