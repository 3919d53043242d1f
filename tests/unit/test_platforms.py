"""A worker is refused where it would promise more than it keeps."""

from __future__ import annotations

import sys

import pytest

from stillhere import App
from stillhere.domain.errors import ConfigurationError
from stillhere.worker.platforms import refuse_elsewhere


@pytest.mark.parametrize("platform", ["win32", "freebsd14", "emscripten"])
def test_elsewhere_it_says_where_it_runs(monkeypatch: pytest.MonkeyPatch, platform: str) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    with pytest.raises(ConfigurationError, match=rf"runs on Linux and macOS, not on {platform}"):
        refuse_elsewhere()


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_here_it_runs(monkeypatch: pytest.MonkeyPatch, platform: str) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    refuse_elsewhere()


def test_an_embedded_worker_is_refused_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(ConfigurationError, match="not on win32"):
        App("redis://localhost").worker()
