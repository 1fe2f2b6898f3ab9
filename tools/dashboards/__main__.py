"""The generator of `deploy/grafana/`: `python -m tools.dashboards` writes the files."""

from pathlib import Path

from tools.dashboards.boards import BOARDS

FOLDER = Path(__file__).parents[2] / "deploy" / "grafana"


def main() -> None:
    """Write each dashboard into its file."""
    FOLDER.mkdir(exist_ok=True)
    for board in BOARDS:
        (FOLDER / f"{board.uid}.json").write_text(board.text(), encoding="utf-8")


if __name__ == "__main__":
    main()
