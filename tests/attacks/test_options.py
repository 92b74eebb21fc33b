"""What the author of a study may try by options of other programs: in each list, and in spellings that are on none."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laboratory.samples import sample
from storlab.base.allowed import allowed, together
from storlab.base.reach import Found, reaching
from storlab.nodes.kinds.vm.hardware import Hardware
from storlab.workloads.base import OptionError
from storlab.workloads.pgbench import PgbenchWorkload
from study.program import call

CASES = json.loads(sample(__file__, "cases/options.json"))
STUDY = sample(__file__, "cases/options.toml")
MKFS, MOUNT = '{ layer = "mkfs", type = "ext4" }', '{ layer = "mount" }'


def refused(text: str, key: str, line: int, says: str) -> None:
    """By each command that takes a study, with file, line and key, and before anything is done."""
    Path("study.toml").write_text(text)
    for command in ("plan", "run", "shell", "crash"):
        ran = call(command, "study.toml")
        assert (ran.status, ran.output) == (2, ""), ran
        assert says in ran.message and ran.message.startswith(f"study.toml: line {line}: "), ran
        assert key in ran.message.split(": ")[2] and ran.message.count("\n") == 1, ran
    assert [path.name for path in Path().iterdir()] == ["study.toml"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.mark.parametrize(("layer", "says"), CASES["mount"])
def test_no_option_of_a_mount_leads_elsewhere_or_stops_the_machine(layer: str, says: str) -> None:
    refused(STUDY.replace("MKFS", MKFS).replace("MOUNT", layer), "stack[3]", 6, says)


@pytest.mark.parametrize(("keys", "says"), CASES["mkfs"])
def test_no_argument_of_mkfs_names_a_file_or_another_device(keys: str, says: str) -> None:
    refused(STUDY.replace("MKFS", f'{{ layer = "mkfs", {keys} }}').replace("MOUNT", MOUNT), "stack[2]", 5, says)


DANGEROUS = {
    ("mariadb", "innodb"): """
        skip_networking bind_address port extra_port chroot skip_grant_tables secure_file_priv plugin_load plugin_dir
        init_file init_connect local_infile general_log_file slow_query_log_file log_error tmpdir socket basedir user
        innodb_data_home_dir innodb_data_file_path innodb_log_group_home_dir innodb_undo_directory innodb_tmpdir
        innodb_buffer_pool_filename innodb_temp_data_file_path lc_messages_dir character_sets_dir ssl_key
        """,
    ("mysql", "innodb"): """
        mysqlx mysqlx_bind_address mysqlx_port mysqlx_socket admin_address admin_port innodb_directories
        innodb_doublewrite_dir innodb_redo_log_archive_dirs innodb_temp_tablespaces_dir early_plugin_load
        innodb_undo_directory persisted_globals_load init_file secure_file_priv report_host
        """,
    ("postgresql",): """
        listen_addresses unix_socket_directories hba_file ident_file config_file data_directory include include_dir
        shared_preload_libraries session_preload_libraries local_preload_libraries dynamic_library_path jit_provider
        archive_command archive_library restore_command recovery_end_command ssl_passphrase_command krb_server_keyfile
        log_directory log_filename external_pid_file stats_temp_directory temp_tablespaces
        """,
}
SETTINGS = [(servers, name) for servers, names in DANGEROUS.items() for name in names.split()]


@given(
    st.sampled_from(SETTINGS),
    st.sampled_from(["", "loose_", "skip_", "loose_skip_", "enable_", "disable_", "maximum_", "no_", "--", " "]),
    st.integers(0, 40),
    st.sampled_from([str, str.upper, str.title, lambda name: name.replace("_", "-")]),
)
def test_no_spelling_of_a_setting_that_names_a_file_or_an_address_is_taken(setting, before, cut, spelt) -> None:  # type: ignore[no-untyped-def]
    """Servers complete the unique beginning of a name, and take words in front of it off."""
    servers, name = setting
    table = together(*(allowed("databases", server) for server in servers))
    assert table.problem(f"{before}{spelt(name)}", "0") is not None
    beginning = name[: len(name) - cut] or name
    assert table.problem(f"{before}{beginning}", "0") is not None, beginning


@pytest.mark.parametrize(
    "command",
    [
        r"\shell touch /tmp/x", r"SELECT 1 \shell touch /tmp/x; echo ran", r"\SetShell a id", r"\ shell id",
        "SELECT 1 \\\\\n shell id", "\\\\\r\n\tshell id", r"\set a 1 \shell id", r"\include /etc/passwd",
        r"\i x", r"\!id",
    ],
)  # fmt: skip
def test_no_script_of_pgbench_runs_a_command_of_the_shell(command: str) -> None:
    with pytest.raises(OptionError, match=r"line \d of x.sql: .* is not among pgbench's commands"):
        PgbenchWorkload(script="x.sql").resolve(lambda name: f"SELECT 1;\n{command}\n")


def test_a_script_of_pgbench_may_set_variables_wait_and_branch() -> None:
    script = "\\set a random(1, 10)\n\\if :a > 5\n\\sleep 1 ms\n\\else\nSELECT :a \\gset\n\\endif\n"
    assert PgbenchWorkload(script="x.sql").resolve(lambda name: script)._text == script


@pytest.mark.parametrize(
    "words",
    [
        ["-chardev", "file,id=x,path=/etc/cron.d/x"], ["--chardev", "file,id=x,path=/x"], ["-serial", "file:/x"],
        ["-D", "/x"], ["-drive", "file=/dev/sda"], ["-device", "vfio-pci,host=01:00.0"], ["-readconfig", "/x"],
        ["-device", "virtio-rng-pci,romfile=/etc/shadow"], ["-device", "virtio-rng-pci,rng=x"],
        ["-incoming", "exec:id"],
        ["-smbios", "file=/etc/shadow"], ["-smbios", "type=11,path=/etc/shadow"], ["-overcommit"], ["-rtc", "base=x y"],
        ["-overcommit", "mem-lock=on", "-monitor", "unix:/x,server"], ["-overcommit=mem-lock=on"], ["-Overcommit", "x"],
        ["/etc/passwd"], ["-sandbox", "off"], ["-run-with", "user=root"], ["-netdev", "user,id=n"], ["-vnc", ":0"],
    ],
)  # fmt: skip
def test_no_argument_of_qemu_that_may_open_or_run_anything_goes_without_a_permission(words: list[str]) -> None:
    listed = ("-overcommit", "mem-lock=on", "-rtc", "base=utc", "-device", "virtio-rng-pci")
    for arguments in (words, [*listed, *words]):
        wanted = [*reaching(Hardware(qemu_args=tuple(arguments)))]
        assert wanted == [Found(("qemu_args",), "code", shlex.join(arguments))]
    assert [*reaching(Hardware(qemu_args=(*listed, "-smbios", "type=1,serial=S 1")))] == []


GUESTS = sample(__file__, "cases/options-of-guests.toml")


@pytest.mark.parametrize(
    ("more", "key", "says"),
    [
        (
            'qemu_args = ["-chardev", "file,id=x,path=x"]',
            "nodes.vm.qemu_args",
            "--allow 'code=-chardev file,id=x,path=x'",
        ),
        ('cpu = "max,/etc/shadow"', "nodes.vm.cpu", "it takes a model and features"),
        ('cpu = "max -chardev x"', "nodes.vm.cpu", "it takes a model and features"),
    ],
)
def test_what_a_guests_study_writes_for_qemu_is_refused_with_its_key(more: str, key: str, says: str) -> None:
    Path("study.toml").write_text(GUESTS.replace("MORE", more))
    for command in ("plan", "run", "shell"):
        ran = call(command, "study.toml")
        assert (ran.status, ran.output) == (2, ""), ran
        assert f"study.toml: line 5: {key}" in ran.message and says in ran.message, ran
