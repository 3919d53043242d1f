"""Which store a command is about, and who said so.

The order: ``--url``; the app named by ``--app``, ``STILLHERE_APP`` or pyproject.toml (what its `App(...)` says, else
``STILLHERE_URL``); ``STILLHERE_URL``; an embedded store that is already there. A command that only looks or changes
things never makes an embedded store: where there is none it says what to give. `enqueue` may make one, as the app
would.

With ``--url`` alone no user code is imported. Otherwise the app is: what stands in its code comes before the
environment, and only the code can say it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from stillhere.backends.redis.embedded_place import existing_store
from stillhere.discovery import AppPath, find_app_path, load_app
from stillhere.domain.errors import ConfigurationError
from stillhere.link import EMBEDDED, Address, Link, find_address, find_namespace

if TYPE_CHECKING:
    from stillhere.cli.options import Choices
    from stillhere.link import Script
    from stillhere.ports.backend import Verb

R = TypeVar("R")

NO_STORE = (
    "No store is configured. Give --url, name the app (--app, STILLHERE_APP, or app in [tool.stillhere] of "
    "pyproject.toml), or set STILLHERE_URL=redis://...; there is no embedded store of this project yet."
)


class Setting(NamedTuple):
    """A value and where it was set."""

    value: str
    origin: str


class CommandLink(Link):
    """A link whose address was found on the command line's own way."""

    def __init__(self, address: Address, namespace: str) -> None:
        super().__init__(address.url, namespace)
        self._address = address

    @property
    def address(self) -> Address:
        """The URL and its origin, for errors."""
        return self._address

    def ask(self, verb: Verb[R]) -> R:
        """Run one verb; an error says where the address came from."""
        return self.run_sync(_one(verb))

    def ask_many(self, verbs: Sequence[Verb[R]]) -> list[R]:
        """Run verbs of one kind in one round trip."""
        return self.run_sync(_many(list(verbs))) if verbs else []


def _one(verb: Verb[R]) -> Script[R]:
    reply: R = yield verb
    return reply


def _many(verbs: list[Verb[Any]]) -> Script[list[Any]]:
    replies: list[Any] = yield verbs
    return replies


class Place:
    """The store, and the app when one was named and not passed over by ``--url``."""

    def __init__(self, address: Address, namespace: Setting, app: Any, app_path: AppPath | None) -> None:
        self.address = address
        self.namespace = namespace
        self.app = app
        self.app_path = app_path
        self.link = CommandLink(address, namespace.value)


def find_place(choices: Choices, environ: Mapping[str, str], *, may_make: bool) -> Place:
    """Resolve it; raises `ConfigurationError`."""
    path = None if choices.url and not choices.app else find_app_path(choices.app, environ)
    app = None if path is None else load_app(path.path)
    address = Address(choices.url, "--url") if choices.url else _address(app, path, environ)
    if address is None or address.url == EMBEDDED:
        address = _embedded(environ, may_make=may_make)
    return Place(address, _namespace(choices, app, path, environ), app, path)


def _address(app: Any, path: AppPath | None, environ: Mapping[str, str]) -> Address | None:
    """What the app or the environment says; None: neither says anything."""
    if app is None:
        found = find_address(environ)
        return None if found.url == EMBEDDED and not environ.get("STILLHERE_URL", "").strip() else found
    found = app.link.address
    if path is not None and found.origin.startswith("App("):
        return Address(found.url, f"{found.origin} in {path.path}")
    return Address(found.url, found.origin)


def _embedded(environ: Mapping[str, str], *, may_make: bool) -> Address:
    there = existing_store(environ)
    if there is not None:
        return Address(f"{EMBEDDED}{there}", f"the embedded store in {there}")
    if may_make:
        return Address(EMBEDDED, "the default, since no store is configured")
    raise ConfigurationError(NO_STORE)


def _namespace(choices: Choices, app: Any, path: AppPath | None, environ: Mapping[str, str]) -> Setting:
    if choices.namespace:
        return Setting(find_namespace(choices.namespace), "--namespace")
    name = find_namespace(None, environ) if app is None else str(app.namespace)
    from_environ = environ.get("STILLHERE_NAMESPACE", "").strip()
    if app is not None and path is not None and name != find_namespace(None, environ):
        return Setting(name, f"App(namespace=...) in {path.path}")
    return Setting(name, "STILLHERE_NAMESPACE" if from_environ else "the default")
