"""Which programs a suite's scripts call, themselves or by a function of its libraries."""

from __future__ import annotations

import subprocess
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from storlab.suite.calls import by_program, functions_that_call, parse_calls, pattern_of
from storlab.suite.model import Group, Script, Suite

LIBRARY = """\
#!/bin/ksh
# sum_of calls xsum, but this comment calls nothing: xsum
function sum_of
{
	find "$1" -exec xsum {} +
}

same_content () {
	[ "$(sum_of "$1")" = "$(sum_of "$2")" ]
}

function copy # and compare
{
	cp "$1" "$2"; same_content "$1" "$2" || jq . < "$1"
	# xsum
}

function unrelated
{
	echo "the xsum of nothing"
}
"""


def test_a_function_needs_what_it_calls_and_what_the_functions_that_it_calls_need() -> None:
    assert functions_that_call(LIBRARY, ["xsum", "jq"]) == {
        "sum_of": {"xsum"},
        "same_content": {"xsum"},
        "copy": {"xsum", "jq"},
    }
    assert functions_that_call(LIBRARY, []) == {}


def test_functions_that_call_each_other_end_the_search() -> None:
    library = "function a\n{\n\tb\n}\nfunction b\n{\n\ta\n\tjq\n}\n"
    assert functions_that_call(library, ["jq"]) == {"a": {"jq"}, "b": {"jq"}}


@given(st.text(alphabet="ab \t\n(){};|&$\"'#_function", max_size=400), st.sets(st.sampled_from("ab"), min_size=1))
def test_a_library_of_any_text_is_read(text: str, programs: set[str]) -> None:
    assert all(needed <= programs for needed in functions_that_call(text, programs).values())


def test_a_long_chain_of_functions_and_a_long_row_of_quotes_are_followed() -> None:
    chain = "".join(f"function f{number}\n{{\n\tlog_must f{number + 1}\n}}\n" for number in range(5000))
    quotes = f"function q\n{{\n\tuser_run {chr(39) * 200_000}\n}}\n"
    found = functions_that_call(chain + quotes, ["f5000"])
    assert len(found) == 5000 and found["f0"] == {"f5000"}


def test_programs_that_a_script_calls_are_found_by_name() -> None:
    lines = ["/t/a.ksh:3:log_must jq .", "/t/a.ksh:4:zed -f", "/t/b.cfg:1:$(jq", "/t/c:1:jqx"]
    assert parse_calls(lines, ["jq", "zed"]) == {"/t/a.ksh": {"jq", "zed"}, "/t/b.cfg": {"jq"}}


def test_grep_finds_calls_where_a_shell_expects_a_command_only(tmp_path: Path) -> None:
    script = tmp_path / "a.ksh"
    calls = (
        "user_run tester jq",
        "jq .",
        "\tjq",
        "x | jq -r",
        "log_must jq",
        "y=$(jq a)",
        "log_must eval \"jq 'b'\"",
        "`jq`",
        "a; jq;",
    )
    others = ("echo jq", "# the jq", "jqx", "xjq", "x=jq", "-exec /jq")
    script.write_text("\n".join(calls + others))
    found = subprocess.run(["grep", "-cE", pattern_of(["jq", "c++"]), script], capture_output=True, text=True)
    assert int(found.stdout) == len(calls)


def test_a_test_needs_what_its_folders_set_up_and_settings_call_but_not_what_a_library_beside_it_could() -> None:
    group = Group("/t/g", tuple(Script(f"/t/g/{name}", "", f"/t/g/{name}.ksh") for name in ("one", "two")))
    calls = {"/t/g/one.ksh": {"jq"}, "/t/g/setup.ksh": {"zed"}, "/t/g/lib.kshlib": {"pax"}, "/t/h/g.cfg": {"perf"}}
    assert by_program(Suite("s", (group,)), calls) == {"jq": ["/t/g/one"], "zed": ["/t/g/one", "/t/g/two"]}
