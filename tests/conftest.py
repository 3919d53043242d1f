"""What every test shares: the Hypothesis profiles. Fixtures live beside their users, helpers in `tests/support/`.

The default profile, `ci`, draws the same examples each time and never looks at a clock, so a run cannot be red today
and green tomorrow. `HYPOTHESIS_PROFILE=explore` searches with fresh randomness and far longer.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.support.fixtures"]

settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],  # the one check that reads a clock
)
settings.register_profile("explore", parent=settings.get_profile("ci"), derandomize=False, max_examples=5_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
