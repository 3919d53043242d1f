"""``python -m stillhere`` is `stillhere`: for places where the script's directory is not on the PATH."""

from stillhere.cli import main

if __name__ == "__main__":
    main(prog_name="stillhere")
