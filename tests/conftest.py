"""What holds for all tests."""

from __future__ import annotations

from hypothesis import settings

# How long an example takes tells something of the machine, on which other tests run at the same time.
settings.register_profile("storlab", deadline=None)
settings.load_profile("storlab")
