"""The start of commands: each imports what it uses.

Counts of modules instead of times, which depend on the machine. `tidelog topic list` takes about
1.5 times the CPU time of `import click, trio, msgspec`; with all parts of the client it took 2.2.
"""

import json
import subprocess
import sys

import pytest

CODE = """
import json, sys
import click, msgspec, trio
before = set(sys.modules)
from tidelog.cli import main
command = main.tidelog
for word in sys.argv[1:]:
    command = command.get_command(click.Context(command), word)
print(json.dumps(sorted(set(sys.modules) - before)))
"""
PARTS = {
    "tidelog.client.admin.alerts": {"alerts"},
    "tidelog.client.consumer.consumer": {"consume", "queue"},
    "tidelog.client.producer.producer": {"produce", "queue"},
    "tidelog.client.metrics.statistics": set[str](),
    "tidelog.client.queue.queue": {"queue"},
    "rich": {"produce", "top"},
    "asyncio": set[str](),
    "tidelog.broker.server": set[str](),
}
"""Parts, and the commands that import them."""


def imported(*words: str) -> set[str]:
    """Return the modules that a command imports besides those of its libraries."""
    result = subprocess.run(
        [sys.executable, "-c", CODE, *words], capture_output=True, text=True, check=True
    )
    return set(json.loads(result.stdout))


@pytest.mark.parametrize(
    ("words", "count_max"),
    [
        (["topic", "list"], 105),
        (["group", "describe"], 106),
        (["cluster", "status"], 104),
        (["consume"], 118),
        (["produce"], 124),
        (["queue", "receive"], 196),
    ],
    ids=str,
)
def test_a_command_imports_only_the_parts_that_it_uses(words: list[str], count_max: int) -> None:
    modules = imported(*words)

    foreign = {part for part, commands in PARTS.items() if words[0] not in commands}
    assert not foreign & modules
    assert len([name for name in modules if name.startswith("tidelog")]) <= count_max
