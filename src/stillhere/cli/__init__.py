"""The command line: `stillhere VERB`. Everything it does goes through the app, the ports and the stores.

`main` is the program. It imports click and a table of verbs and nothing else; a verb's module is imported when the
verb is called, and what that needs (the store's client, msgspec) when it does its work. So ``stillhere --help`` is as
fast as click.
"""

from stillhere.cli.face import main

__all__ = ["main"]
