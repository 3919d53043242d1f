"""The program `stillhere`, also as ``python -m stillhere`` where the script's directory is not on the PATH.

A worker hears signals before anything else is imported: as process 1 of a container it would miss a TERM that comes
while the command line loads, and TERM does not come again. All other verbs keep the usual Ctrl-C.
"""

import sys


def main() -> None:
    """Run the command line."""
    if sys.argv[1:2] == ["worker"] and sys.platform != "win32":
        from stillhere.worker.supervisor.main import install_signals  # noqa: PLC0415 - not for the other verbs

        install_signals()
    from stillhere.cli import main as face  # noqa: PLC0415 - after the handlers

    face(prog_name="stillhere")


if __name__ == "__main__":
    main()
