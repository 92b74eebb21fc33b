"""Several small operations on files in one request: requests, answers, and what a real agent makes of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.base.errors import CommandFailed, NodeError, ProtocolError, StorlabError
from storlab.nodes.agent import steps
from storlab.nodes.agent.protocol import Frame, StepResult, encode
from storlab.nodes.agent.steps import match_results, requests
from storlab.nodes.answers import files_below
from storlab.nodes.node import Node
from storlab.nodes.undo import remove_folder

from .test_node import of_a_node, on_node

RUN = "20260102-030405-abcd"


@given(st.lists(st.tuples(st.text(max_size=4000), st.binary(max_size=200_000)), max_size=40))
def test_every_step_goes_out_once_in_order_and_every_request_fits_a_frame(wanted: list[tuple[str, bytes]]) -> None:
    made = [steps.create(path.encode(errors="replace").decode(), data) for path, data in wanted]
    found = list(requests(made))
    assert [step for request in found for step in request] == made
    for request in found:
        header = {"id": 2**53, "op": "steps", "steps": [step.as_request() for step in request], "go_on": True}
        encode(Frame(header, b"".join(step.data for step in request)))


def test_results_get_the_contents_that_are_theirs_and_others_are_refused() -> None:
    request = [steps.read("/a"), steps.look("/b"), steps.names("/c"), steps.read("/d")]
    failed = StepResult(errno="EIO", message="no")
    results = [StepResult(size=2), StepResult(size=7, kind="file"), StepResult(size=4), failed]
    done = match_results(request, results, b"aab\0c\0", go_on=True)
    assert ([each.contents for each in done], done[2].entries) == ([b"aa", b"", b"b\0c\0", b""], ["b", "c"])
    assert [each.ok for each in done] == [True, True, True, False]
    of_two = (([StepResult(size=3), StepResult()], b"aa"), ([StepResult(size=1), StepResult()], b"aa"))
    of_others = (([StepResult(size=2)], b"aa"), ([StepResult(size=0)] * 3, b""), ([StepResult(size=2)] * 2, b"aaaa"))
    for results, contents in (*of_two, *of_others, ([StepResult(message="no"), StepResult()], b"")):
        with pytest.raises(ProtocolError):
            match_results([steps.read("/a", 2), steps.look("/b")], results, contents, go_on=False)


RESULTS = st.builds(StepResult, size=st.none() | st.integers(0, 9), message=st.none() | st.just("no"))


@given(st.lists(RESULTS), st.binary())
def test_no_answer_is_another_exception(results: list[StepResult], contents: bytes) -> None:
    request = [steps.read("/a", 4), steps.names("/b"), steps.look("/c")]
    for go_on in (False, True):
        try:
            done = match_results(request, results, contents, go_on=go_on)
        except ProtocolError:
            continue
        assert b"".join(each.contents for each in done) == contents


@pytest.mark.parametrize(
    "result",
    [
        StepResult(),  # neither a status nor a reason
        StepResult(code=1, size=0, errors=0),
        StepResult(code=0, message="ended with status 0"),
        StepResult(code=0, size=1, errors=9),
        StepResult(signal="SIGKILL"),
    ],
)
def test_a_program_that_ended_in_two_ways_or_printed_more_than_came_is_refused(result: StepResult) -> None:
    with pytest.raises(ProtocolError):
        match_results([steps.run(["true"], {}, None)], [result], b"x", go_on=False)


def test_a_program_among_steps_fails_in_the_same_words_as_one_by_itself(tmp_path: Path) -> None:
    made = tmp_path / "made"

    async def said(node: Node, argv: list[str]) -> tuple[list[str], list[str]]:
        found = []
        for attempt in (node.run(argv), node.carry_out(node.command(argv), steps.make_directory(str(made)))):
            with pytest.raises(CommandFailed) as error:
                await attempt
            found.append([str(error.value), error.value.detail])
        return found[0], found[1]

    async def act(node: Node) -> None:
        for argv in (["sh", "-c", "echo first; echo why >&2; exit 3"], ["sh", "-c", "kill -9 $$"], ["/no/such"]):
            alone, among = await said(node, argv)
            assert alone == among
        (done,) = await node.carry_out(node.command(["sh", "-c", 'echo "$A"'], env={"A": "given"}))
        assert done.text == "given"

    on_node(act)
    assert not made.exists()


def test_a_cancelled_caller_ends_the_program_that_its_steps_are_at(tmp_path: Path) -> None:
    begun, made = tmp_path / "begun", tmp_path / "made"

    async def act(node: Node) -> None:
        argv = ["sh", "-c", f"echo > {begun}; exec sleep 60"]
        task = asyncio.create_task(node.carry_out(node.command(argv), steps.make_directory(str(made))))
        while not begun.exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not (await node.run(["pgrep", "--full", f"^sh -c echo > {begun}"], check=False)).ok
        assert node.lost is None

    on_node(act)
    assert not made.exists()


@of_a_node
async def test_what_steps_make_is_there_and_what_they_read_is_given(node: Node, tmp_path: Path) -> None:
    done = await node.carry_out(
        steps.make_directory(f"{tmp_path}/a", 0o700),
        steps.create(f"{tmp_path}/a/file", b"text\n", 0o600),
        steps.write(f"{tmp_path}/a/file", "TE"),
        steps.symlink(f"{tmp_path}/a/link", "file"),
        steps.resize(f"{tmp_path}/large", 10**9),
        steps.read(f"{tmp_path}/a/link"),
        steps.names(f"{tmp_path}/a", targets=True),
        steps.look(f"{tmp_path}/large"),
        steps.sync(str(tmp_path)),
    )
    assert (done[5].text, done[6].targets) == ("TExt", {"file": "", "link": "file"})
    assert (done[7].result.size, done[7].result.allocated) == (10**9, 0)
    assert ((tmp_path / "a").stat().st_mode & 0o777, (tmp_path / "a/file").stat().st_mode & 0o777) == (0o700, 0o600)


def test_a_step_that_fails_is_raised_with_its_reason_and_the_rest_is_left_out(tmp_path: Path) -> None:
    made = steps.make_directory(f"{tmp_path}/made")
    with pytest.raises(FileNotFoundError, match="/no/such"):
        on_node(lambda node: node.carry_out(steps.read("/no/such"), made))
    assert not (tmp_path / "made").exists()
    with pytest.raises(NodeError, match=r"node n: can't make the directory .*: File exists"):
        on_node(lambda node: node.carry_out(made, made))
    found = on_node(lambda node: node.carry_out(steps.read("/no/such"), made, go_on=True))
    assert [each.ok for each in found] == [False, False] and found[0].missing
    given_file = tmp_path / "input"
    given_file.write_bytes(b"x" * 300_000)
    assert len(on_node(lambda node: node.run(["cat"], stdin=given_file)).stdout) == 300_000
    with pytest.raises(StorlabError, match=r"cat can't be run: can't open .* for the standard input: No such file"):
        on_node(lambda node: node.run(["cat"], stdin=tmp_path / "none"))
    with pytest.raises(StorlabError, match="Invalid argument"):
        on_node(lambda node: node.run(["cat"], stdin=tmp_path))


@of_a_node
async def test_more_steps_than_one_request_takes_and_a_listing_longer_than_an_answer(
    node: Node, tmp_path: Path
) -> None:
    await node.carry_out(*(steps.create(f"{tmp_path}/{number}", b"%d" % number) for number in range(600)))
    texts = await node.texts(*(f"{tmp_path}/{number}" for number in range(601)))
    assert texts == [*(str(number) for number in range(600)), None]
    for number in range(6000):
        (tmp_path / f"{number:0200}").touch()
    found = await files_below(node, str(tmp_path))
    assert len(found) == 6600 and {size for _, size in found} == {0, 1, 2, 3}


@of_a_node
async def test_a_cancelled_caller_stops_its_steps(node: Node, tmp_path: Path) -> None:
    for number in range(3000):
        (tmp_path / f"{number}").touch()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await node.carry_out(*(steps.files(str(tmp_path)) for _ in range(200)), go_on=True)
    assert node.lost is None
    assert (await node.carry_out(steps.look(str(tmp_path))))[0].result.kind == "directory"


def test_a_folder_that_others_have_put_a_link_to_is_left_alone(tmp_path: Path) -> None:
    foreign, link = tmp_path / "foreign", tmp_path / f"storlab-{RUN}"
    foreign.mkdir()
    (foreign / "kept").touch()
    link.symlink_to(foreign)
    said = "is not what Storlab made there, for a symbolic link is in its way: left alone"
    with pytest.raises(StorlabError, match=said):
        on_node(lambda node: remove_folder(node, str(link)))
    with pytest.raises(StorlabError, match="for a symbolic link is in its way"):
        on_node(lambda node: remove_folder(node, f"{link}/kept", itself=False))
    assert (foreign / "kept").exists()
    link.unlink()
    assert on_node(lambda node: remove_folder(node, str(link))) is None
