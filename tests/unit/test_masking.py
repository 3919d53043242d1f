"""A password in a store's URL is never shown, whatever characters it is made of."""

from __future__ import annotations

import pytest

from stillhere.backends.redis.connection import masked


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://user:secret@host/0", "redis://user:***@host/0"),
        ("redis://:secret@host/0", "redis://:***@host/0"),
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("redis://:pa:ss@word/x@host/0", "redis://:***@host/0"),
        ("unix:///run/a:b@c.sock", "unix:///run/a:b@c.sock"),
        ("unix:///run/s.sock?db=1&password=secret&x=1", "unix:///run/s.sock?db=1&password=***&x=1"),
        ("unix:///run/s.sock?password=secret", "unix:///run/s.sock?password=***"),
    ],
)
def test_a_password_is_never_shown(url: str, shown: str) -> None:
    assert masked(url) == shown
