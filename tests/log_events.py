"""Names of all events that the code of the product logs, found in its syntax trees."""

import ast
from collections.abc import Iterator
from typing import Final

from tests.paths import ROOT
from tidelog.coordinator.metadata.cluster_events import ClusterEventKind

ROOMS: Final = (
    "broker",
    "client",
    "coordinator",
    "gateway",
    "isr",
    "logstore",
    "queue_layer",
    "wire",
)
CLI: Final = "tidelog/cli/serve"

_FIRST: Final = {"probe", "_probe", "LogEvent", "_isr_event"}
"""Functions whose first argument is the name of an event."""
_KEYWORD: Final = "failure"
"""Keyword argument that is the name of an event."""
_PASSED_ON: Final = {
    ("broker/metrics/event_counts.py", "event"),
    ("broker/network/refusals.py", "event"),
    ("broker/network/refusals.py", "f'{event}_again'"),
    ("broker/partitions/partition.py", "event"),
    ("broker/queues/partition/hosted_partition.py", "event"),
    ("broker/replication/context.py", "failure"),
    ("client/consumer/group/member.py", "event"),
    ("client/processing/processor.py", "event"),
    ("coordinator/controller/replicated_state.py", "each.name"),
    ("coordinator/metadata/log_events.py", "event.kind"),
    ("coordinator/metadata/log_events.py", "name"),
}
"""Expressions that pass on a name from elsewhere."""


def event_names() -> set[str]:
    """Return the names of all events.

    Raises:
        AssertionError: A name is computed in a way that this module does not know.
    """
    names = {kind.value for kind in ClusterEventKind}
    for folder in (*ROOMS, CLI):
        for path in sorted((ROOT / folder).rglob("*.py")):
            file = str(path.relative_to(ROOT))
            for call in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(call, ast.Call):
                    names |= set(_names_in(call, file))
    return names


def _names_in(call: ast.Call, file: str) -> Iterator[str]:
    function = call.func
    receiver = ast.unparse(function.value) if isinstance(function, ast.Attribute) else ""
    name = function.attr if isinstance(function, ast.Attribute) else ast.unparse(function)
    if name in _FIRST and call.args:
        yield from _constants(call.args[0], file)
    elif name == "add" and receiver.endswith("refusals"):
        for event in _constants(call.args[0], file):
            yield from (event, f"{event}_again")
    elif receiver == "_log" and name in {"error", "info", "warning"}:
        # Other lines of the command are sentences.
        yield from filter(str.isidentifier, _constants(call.args[0], file))
    for keyword in call.keywords:
        if keyword.arg == _KEYWORD:
            yield from _constants(keyword.value, file)


def _constants(expression: ast.expr, file: str) -> Iterator[str]:
    match expression:
        case ast.Constant(value=str(name)):
            yield name
        case ast.IfExp():
            yield from _constants(expression.body, file)
            yield from _constants(expression.orelse, file)
        case _:
            place = (file, ast.unparse(expression))
            assert place in _PASSED_ON, f"{place}: give the event a literal name"
