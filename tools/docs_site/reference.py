"""Generated pages of the reference: the command line from click, the API from `tidelog.surface`."""

import inspect
import re
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from typing import Final

import click

import tidelog.surface
import tidelog.values
from tidelog.cli.main import tidelog as command_line

API_PAGES: Final = {
    "client": ("connect", "Client", "ClientConfig", "TopicPartition"),
    "producer": (
        "Producer",
        "ProducerConfig",
        "ProducerStatistics",
        "Receipt",
        "RangeReceipt",
        "AckLevel",
    ),
    "consumer": (
        "Consumer",
        "ConsumerConfig",
        "Record",
        "RecordBatch",
        "RecordIterator",
        "BatchIterator",
    ),
    "queue": (
        "Queue",
        "Message",
        "Origin",
        "OutgoingMessage",
        "QueueSubscription",
        "QueueWorker",
        "WorkerConfig",
        "WorkerStatistics",
        "stop_on_signal",
        "StopSignal",
        "PeekedMessage",
        "MessageState",
        "HistoryEvent",
        "EventKind",
        "MessageStory",
        "MessageInterval",
        "QueueCounts",
        "RedriveReport",
        "RedriveStatus",
    ),
    "transaction": ("Transaction", "TransactionTask", "TaskResult"),
    "admin": ("Admin", "cluster_health", "ClusterHealth", "ClusterSeverity"),
    "security": ("SecurityAdmin",),
    "statistics": (
        "ClientStatistics",
        "ConnectionStatistics",
        "RequestStatistics",
        "ClientProducerStatistics",
        "ProducedTopicStatistics",
        "ClientConsumerStatistics",
        "ConsumedTopicStatistics",
        "ClientQueueStatistics",
        "HistogramValue",
    ),
    "embedded": ("open_broker", "RunningBroker"),
}
"""The names of each page, in reading order. Two more pages contain all other names: errors, and
descriptions that `Admin` returns."""

_TITLES: Final = {
    "client": "Client",
    "producer": "Producer",
    "consumer": "Consumer",
    "queue": "Queue",
    "transaction": "Transactions",
    "admin": "Admin",
    "security": "Security",
    "statistics": "Statistics",
    "embedded": "Embedded broker",
    "descriptions": "Descriptions",
    "errors": "Errors",
}
_FACES: Final = {
    "aio": (
        "Asyncio client",
        "programs on asyncio: [how to use asyncio](../../howto/asyncio.md)",
    ),
    "blocking": ("Blocking client", "programs without an event loop"),
}
_INTRODUCTIONS: Final = {
    "descriptions": "The values that [Admin](admin.md) returns.\n\n",
    "errors": "All errors are importable from `tidelog`, and all are subclasses of"
    " `tidelog.TidelogError`. The message of an error says what failed, why, and what to do.\n\n",
}


def api_names() -> dict[str, tuple[str, ...]]:
    """Return the public names on each page; every public name is on one."""
    placed = {name for names in API_PAGES.values() for name in names}
    left = [name for name in tidelog.surface.__all__ if name not in placed]
    errors = tuple(name for name in left if _is_error(name))
    others = tuple(name for name in left if name not in errors)
    return {**API_PAGES, "descriptions": others, "errors": errors}


def api_pages() -> dict[str, str]:
    """Return path and text of the pages about `tidelog` and its other faces."""
    pages: dict[str, str] = {}
    for page, names in api_names().items():
        entries = "".join(_entry(name, _path_of(name)) for name in names)
        introduction = _INTRODUCTIONS.get(page, "")
        pages[f"reference/api/{page}.md"] = f"# {_TITLES[page]}\n\n{introduction}{entries}"
    pages["reference/api/statistics.md"] += _entry(
        "ClientCollector", "tidelog.prometheus.ClientCollector"
    )
    pages["reference/api/testing.md"] = (
        "# Testing\n\nBrokers of tests: [how to test with pytest](../../howto/testing.md).\n\n"
        + _entry("broker", "tidelog.testing.broker")
        + _entry("EphemeralBroker", "tidelog.testing.ephemeral_broker.EphemeralBroker")
    )
    for face, (title, programs) in _FACES.items():
        entries = "".join(_entry(name, path) for name, path in _paths_of_face(face))
        pages[f"reference/api/{face}.md"] = (
            f"# {title}\n\n`tidelog.{face}` has the names of the client for trio, for {programs}."
            f" All other names are the same.\n\n{entries}"
        )
    names = ("instrument", "uninstrument", "process", "replay_history")
    entries = "".join(_entry(name, f"tidelog.tracing.{name}") for name in names)
    pages["reference/api/tracing.md"] = (
        "# Tracing\n\n`tidelog.tracing` makes spans of OpenTelemetry:"
        " [how to trace messages](../../howto/traces.md).\n\n" + entries
    )
    pages["reference/api/outbox.md"] = (
        "# Outbox and inbox\n\n`tidelog.outbox` and `tidelog.idempotent`:"
        " [how to send with a database transaction](../../howto/outbox.md).\n\n" + _outbox_entries()
    )
    return pages


def command_pages() -> dict[str, str]:
    """Return path and text of a page for each command below `tidelog`."""
    context = click.Context(command_line, info_name="tidelog")
    pages = {"reference/cli/index.md": _index(context)}
    for name in command_line.list_commands(context):
        sections = "".join(_sections(_child(context, name), level=1))
        pages[f"reference/cli/{name}.md"] = sections
    return pages


def _index(context: click.Context) -> str:
    rows = [
        f"| [`tidelog {name}`]({name}.md) | {_short_help(_child(context, name).command)} |\n"
        for name in command_line.list_commands(context)
    ]
    return (
        "# Command line\n\n"
        "Every command has `--help`. Commands other than `serve` connect to the broker at"
        " `127.0.0.1:8433`,\nor to those that `--broker` or the variable `TIDELOG_BROKER` names."
        "\n\n| command | |\n|---|---|\n" + "".join(rows)
    )


def _sections(context: click.Context, *, level: int) -> Iterator[str]:
    command = context.command
    about, example = _parts_of_help(command)
    usage = command.get_usage(context).removeprefix("Usage: ")
    yield f"{'#' * level} {context.command_path}\n\n{about}\n\n```text\n{usage}\n```\n\n"
    rows = [each.get_help_record(context) for each in command.params]
    table = "".join(f"| `{_cell(row[0])}` | {_prose(row[1])} |\n" for row in rows if row and row[1])
    if table and not isinstance(command, click.Group):
        yield f"| option | |\n|---|---|\n{table}\n"
    if example:
        yield f"```sh\n{example}\n```\n\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            yield from _sections(_child(context, name), level=level + 1)


def _child(context: click.Context, name: str) -> click.Context:
    group = context.command
    assert isinstance(group, click.Group)
    command = group.get_command(context, name)
    assert command is not None
    return click.Context(command, info_name=name, parent=context)


def _parts_of_help(command: click.Command) -> tuple[str, str]:
    """Return the description of a command, and its examples."""
    text = inspect.cleandoc(command.help or "").replace("\f", "")
    paragraphs = [_prose(each) for each in text.split("\n\n") if not each.startswith("\b")]
    context = click.Context(command)
    formatter = click.HelpFormatter(width=200)
    command.format_epilog(context, formatter)
    lines = inspect.cleandoc(formatter.getvalue()).splitlines()
    example = "\n".join(line.removeprefix("  ") for line in lines if not line.startswith("Example"))
    return "\n\n".join(paragraphs), example.strip()


def _short_help(command: click.Command) -> str:
    return _prose(command.get_short_help_str(limit=200))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _prose(text: str) -> str:
    """Return help text as Markdown, with all markup escaped except code."""
    return re.sub(r"([|*<>\[\]])", r"\\\1", " ".join(text.split()))


def _entry(name: str, path: str) -> str:
    """Return the directive for one name, under the name that a program imports."""
    return (
        f"::: {path}\n    options:\n      heading: {name}\n      toc_label: {name}\n"
        "      show_root_heading: true\n      show_root_toc_entry: true\n      heading_level: 2\n\n"
    )


def _path_of(name: str) -> str:
    value: object = getattr(tidelog.surface, name)
    return f"{value.__module__}.{value.__qualname__}"  # type: ignore[attr-defined]


def _outbox_entries() -> str:
    import tidelog.idempotent  # noqa: PLC0415
    import tidelog.outbox  # noqa: PLC0415

    values = [
        value
        for module in (tidelog.outbox, tidelog.idempotent)
        for value in (getattr(module, name) for name in module.__all__)
        if inspect.isclass(value) or inspect.isfunction(value)
    ]
    return "".join(_entry(each.__name__, f"{each.__module__}.{each.__name__}") for each in values)


def _paths_of_face(face: str) -> Iterator[tuple[str, str]]:
    """Yield the names that are not the same as those of `tidelog`, and where they are defined."""
    module = import_module(f"tidelog.{face}")
    own = [name for name in module.__all__ if name not in tidelog.values.__all__]
    for name in sorted(own, key=lambda name: (name != "connect", name)):
        value: object = getattr(module, name)
        yield name, f"{value.__module__}.{value.__qualname__}"  # type: ignore[attr-defined]


def _is_error(name: str) -> bool:
    value: object = getattr(tidelog.surface, name)
    return isinstance(value, type) and issubclass(value, Exception) and not issubclass(value, Enum)
