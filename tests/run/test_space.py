"""What has no room is refused before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from study.program import call


def plan(tmp_path: Path, text: str) -> tuple[int, str]:
    file = tmp_path / "study.toml"
    file.write_text(text)
    done = call("plan", str(file))
    return done.status, done.message.replace(str(tmp_path), "")


@pytest.mark.parametrize(
    ("stack", "size", "line", "told"),
    [
        ('[{ layer = "directory" }]', "900T", 4, "the load writes 900T, but /var/tmp has only"),
        ('[{ layer = "file", size = "900T" }, { layer = "loop" }]', "1M", 2, "the stacks take up 900T on node host"),
        ('[{ layer = "file", size = "900T", overcommit = true }, { layer = "loop" }]', "1M", None, ""),
    ],
)
def test_a_size_beyond_the_free_space_is_refused_where_it_stands(
    tmp_path: Path, stack: str, size: str, line: int | None, told: str
) -> None:
    status, said = plan(
        tmp_path, f'title = "t"\nstack = {stack}\n\n[workload.w]\nfio = {{ rw = "read", size = "{size}" }}\n'
    )
    assert told in said
    assert "Traceback" not in said
    assert status == (0 if line is None else 2)
    if line is not None:
        assert said.startswith(f"/study.toml: line {line}: ")
    assert [path.name for path in tmp_path.iterdir()] == ["study.toml"]
