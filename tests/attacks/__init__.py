"""Attacks on each of Storlab's promises. What is drawn at random follows from one seed: another one every day."""

from __future__ import annotations

import datetime
import os

SEED = int(os.environ.get("STORLAB_TEST_SEED") or datetime.date.today().toordinal())
"""Says which kills, attempts and odd files this day has; whatever fails prints it."""
ATTACKS = int(os.environ.get("STORLAB_ATTACKS", "0"))
"""How many of each kind, in `make attack`. 0 is for `make test`: a few of each."""
MOMENTS = ATTACKS or 3
"""How many times a run on other machines is killed."""
