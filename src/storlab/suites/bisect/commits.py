"""Commits as candidates, checked out in a worktree of their own: the user's is not touched."""

from __future__ import annotations

import subprocess
from pathlib import Path

from storlab.errors import MissingTool, UserError

_TIME = 300.0  # s, for one command of git


def git(repository: Path, *words: str) -> str:
    """What git prints. Raises ``UserError`` with what it complains of."""
    try:
        ended = subprocess.run(
            ["git", "-C", str(repository), *words], capture_output=True, text=True, errors="replace", timeout=_TIME
        )
    except FileNotFoundError:
        raise MissingTool("there is no git: install it") from None
    if ended.returncode:
        complaint = ended.stderr.strip().splitlines() or [f"it ended with {ended.returncode}"]
        raise UserError(f"git {words[0]} in {repository}: {complaint[-1]}")
    return ended.stdout


def commits_between(repository: Path, good: str, bad: str) -> list[str]:
    """The good commit and those after it up to the bad one, oldest first; of a merge, what it brought is one step.

    Raises ``UserError`` where one is not a commit, or the good one is no ancestor of the bad one.
    """
    first, last = (git(repository, "rev-parse", "--verify", "--quiet", f"{each}^{{commit}}").strip()
                   if _is_commit(repository, each) else _refuse(repository, each) for each in (good, bad))  # fmt: skip
    if first == last:
        raise UserError(f"--good {good} and --bad {bad} are the same commit")
    listed = git(repository, "rev-list", "--reverse", "--first-parent", f"{first}..{last}").split()
    base = git(repository, "merge-base", first, last).strip()
    if base != first:
        raise UserError(f"--good {good} is not an ancestor of --bad {bad}: take {base[:12]}, from which both come")
    return [first, *listed]


def _is_commit(repository: Path, name: str) -> bool:
    git(repository, "rev-parse", "--git-dir")
    ended = subprocess.run(
        ["git", "-C", str(repository), "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"],
        capture_output=True,
        timeout=_TIME,
    )
    return ended.returncode == 0 and not name.startswith("-")


def _refuse(repository: Path, name: str) -> str:
    raise UserError(f"{name} is not a commit of {repository}")


def described(repository: Path, commit: str) -> str:
    return git(repository, "log", "-1", "--format=%h %s (%an, %as)", commit).strip()


class Worktree:
    """One worktree, which goes from commit to commit and keeps what builds left, so that they are short."""

    def __init__(self, repository: Path, place: Path) -> None:
        self._repository, self.place = repository, place

    def __enter__(self) -> Worktree:
        git(self._repository, "worktree", "prune")
        if self.place.exists():
            git(self._repository, "worktree", "remove", "--force", str(self.place))
        git(self._repository, "worktree", "add", "--detach", "--no-checkout", str(self.place), "HEAD")
        return self

    def __exit__(self, *about: object) -> None:
        git(self._repository, "worktree", "remove", "--force", str(self.place))

    def check_out(self, commit: str) -> None:
        git(self.place, "checkout", "--quiet", "--force", "--detach", commit)
