"""Libraries that not every installation has, since they are large or few need them: which of Storlab's extras has them.

``pyproject.toml`` lists what each extra installs.
"""

from __future__ import annotations

from importlib.util import find_spec

from storlab.errors import MissingTool

MODULES = {
    "charts": ("altair", "vl_convert"),
    "vm": ("qemu",),
}
"""Extra → modules that are all there where it is installed."""


def has_extra(extra: str) -> bool:
    """Whether it is installed. Imports nothing."""
    return all(find_spec(module) is not None for module in MODULES[extra])


def lacking(extra: str, feature: str) -> str:
    """What to install for ``feature``, which begins the sentence, in the plural: "charts"."""
    return f"{feature} need Storlab's extra `{extra}`: install it again as `storlab[{extra}]`, or as `storlab[all]`"


def need_extra(extra: str, feature: str) -> None:
    """Raises ``MissingTool`` unless it is installed."""
    if not has_extra(extra):
        raise MissingTool(lacking(extra, feature))
