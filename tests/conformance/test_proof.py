"""The faults that the suite is proven with fit the scripts as they are now."""

from __future__ import annotations

import pytest

from stillhere.backends.redis.scripts import compose, stems
from tests.conformance.broken import FAULTS, mutation


@pytest.mark.parametrize("name", FAULTS)
def test_each_part_of_a_fault_changes_a_script(name: str) -> None:
    texts = {stem: compose(stem)[0] for stem in stems()}
    mutate = mutation(name)
    assert any(mutate(stem, text) != text for stem, text in texts.items())
    for fault in FAULTS[name]:
        told = [text for stem, text in texts.items() if fault.stem in ("*", stem)]
        assert any(fault.old in text for text in told), f"no script says {fault.old!r}"
