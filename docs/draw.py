"""Draw the generated parts of the docs again: `make docs`. A test calls `drawn` to see that nothing is stale."""

from __future__ import annotations

from pathlib import Path

from docs import draw_cli
from stillhere.domain.states import render_mermaid

LIFECYCLE = Path(__file__).with_name("lifecycle.md")
BEGIN = "<!-- lifecycle: begin -->"
END = "<!-- lifecycle: end -->"


def drawn(text: str) -> str:
    """Return the page with the diagram of today between its markers."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n```mermaid\n{render_mermaid()}\n```\n\n{END}{after}"


if __name__ == "__main__":
    LIFECYCLE.write_text(drawn(LIFECYCLE.read_text()))
    draw_cli.PAGE.write_text(draw_cli.drawn(draw_cli.PAGE.read_text()))
