"""Rewriter of the output in scenario files: `python -m tests.queue_layer.rewrite`."""

import sys
from pathlib import Path

from tests.queue_layer.queue_scenario import perform


def main() -> None:
    """Rewrite all scenarios, and name those whose output has changed."""
    for path in sorted((Path(__file__).parent / "scenarios").glob("*.txt")):
        told = path.read_text(encoding="utf-8")
        performed = perform(told)
        if performed != told:
            path.write_text(performed, encoding="utf-8")
            sys.stdout.write(f"{path.name} has changed\n")


if __name__ == "__main__":
    main()
