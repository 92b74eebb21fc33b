from __future__ import annotations

from pathlib import Path

from benchmarks.__main__ import benchmarks


def test_a_benchmark_is_a_module_with_a_main(tmp_path: Path) -> None:
    (tmp_path / "b.py").write_text("def main() -> None: ...\n")
    (tmp_path / "a.py").write_text("x = 1\ndef main() -> None: ...\n")
    (tmp_path / "helpers.py").write_text("def domain() -> None: ...\n")
    (tmp_path / "b_child.py").write_text("def main() -> None: ...\n")
    (tmp_path / "__main__.py").write_text("def main() -> None: ...\n")
    assert benchmarks(tmp_path) == ["a", "b"]
