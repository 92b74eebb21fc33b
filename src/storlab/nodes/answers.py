"""What a node printed is read in many places; where it makes no sense, that is its doing and not an internal error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from storlab.errors import TrialError


@contextmanager
def understood(node: str, what: str) -> Iterator[None]:
    """Raise ``TrialError`` with the node's name where its text is not the number, name or list that it has to be.

    ``what``: what was being done, as in "while ...". A guest's root may let any program there print anything.
    """
    try:
        yield
    except (ValueError, LookupError) as error:
        reason = str(error).replace("\n", " ")[:200]
        raise TrialError(f"node {node}: an answer makes no sense while {what}: {reason}") from error
