"""The generator of `docs/configuration.md`.

`python -m tools.config_docs > docs/configuration.md` writes the page.

Its sources are the fields of `broker.config.broker_config` with the docstrings below them, and the
tables of `coordinator.metadata.topic_config`, `wire.config.queue_config`,
`wire.config.group_config` and `coordinator.metadata.cluster_config`.
"""

import ast
import inspect
import sys
from collections.abc import Iterable
from dataclasses import MISSING
from itertools import pairwise

from tidelog.broker.config import broker_config as config
from tidelog.broker.config.broker_config import FIELDS, BrokerConfig
from tidelog.coordinator.metadata.cluster_config import CLUSTER_SETTINGS
from tidelog.coordinator.metadata.topic_config import SETTINGS
from tidelog.wire.config.group_config import GROUP_SETTINGS
from tidelog.wire.config.queue_config import QUEUE_SETTINGS

_BYTE_UNITS = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_MS_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1))

_INTRODUCTION = """\
# Configuration

`make generate` writes this page from the code; a test fails while it is stale.

`tidelog serve` needs no configuration. Settings are resolved in this order: a flag of `tidelog
serve`, a variable (`TIDELOG_DATA_DIR` sets `data_dir`, and so on for every setting but the table),
the TOML file of `--config`, the default. `tidelog serve --print-config` prints the settings in
force and their sources. A mistyped variable is refused with the right name; other variables that
begin with `TIDELOG_` have no effect. If a name or a value is not valid, the start fails with one
line that lists every problem.

Sizes are bytes or `4KiB`, `16MiB`, `1GiB` (powers of 1,024), `4kB`, `16MB`, `1GB` (powers of
1,000). Times are milliseconds, or [durations](#durations) such as `250ms`, `1h30m`, `8d`.
"""

_EXAMPLE = """
```toml
data_dir = "/var/lib/tidelog"
listen = "0.0.0.0:8433"
advertised = "broker-1.example.com:8433"
queued_max_request_bytes = "256MiB"

[topic_defaults]
retention_ms = "3d"
```
"""

_DURATIONS = """
## Durations

A duration is one or more whole numbers with units, the largest first: `8d`, `1h30m`, `90s`,
`250ms`. Units are `ms`, `s`, `m` or `min`, `h`, `d` and `w`, and words such as `seconds` and
`days`. Settings, options of commands and options of Spark all take these forms. A bare number is
milliseconds in a setting whose name ends in `_ms` and in options of Spark, and seconds in options
of commands. Metadata hold `7d` for `1w` and `90min` for `1h30m`, because older versions read these.
"""

_TOPICS = """
## Topics

`tidelog topic create` sets them, and `tidelog topic alter` changes them while the topic is in use;
a change is in force at once. The metadata of the cluster keeps them, not the file of a broker: its
`topic_defaults` are only the initial values of a new topic.
"""


_QUEUES = """
## Queues

`tidelog queue create` sets them, and `tidelog queue alter` changes them while the queue is in use;
the metadata of the cluster keeps them. [queues.md](queues.md) describes their effects. In programs,
durations are seconds, and their names have no `_ms`.
"""

_GROUPS = """
## Consumer groups

`tidelog group alter` sets them, also before the first member joins; the metadata of the cluster
keeps them until the group is deleted. In programs, durations are seconds, and their names have no
`_ms`.
"""

_CLUSTER = """
## Cluster

`tidelog cluster alter` changes them while the cluster runs, in force at once on all brokers; the
metadata of the cluster keeps them. A setting here overrides the broker setting of the same name;
its value `inherit` leaves it to each broker. `NAME@NODE` overrides it for one broker (in Kafka:
dynamic broker configs). All other settings of brokers need a restart.
`tidelog broker config NODE` lists the settings in force at a broker, and their sources.
"""


def describe() -> str:
    """Return the page."""
    return "".join(
        (
            _INTRODUCTION,
            _EXAMPLE,
            "\n## Broker\n\n",
            _table(_broker_rows()),
            _DURATIONS,
            _TOPICS,
            "\n",
            _table(
                (name, f"`{setting.default}`", setting.allowed, setting.about)
                for name, setting in SETTINGS.items()
            ),
            _QUEUES,
            "\n",
            _table(
                (name, f"`{setting.default}`", setting.allowed, setting.about)
                for name, setting in QUEUE_SETTINGS.items()
            ),
            _GROUPS,
            "\n",
            _table(
                (name, f"`{setting.default}`", setting.allowed, setting.about)
                for name, setting in GROUP_SETTINGS.items()
            ),
            _CLUSTER,
            "\n",
            _table(
                (name, f"`{setting.default}`", setting.allowed, setting.about)
                for name, setting in CLUSTER_SETTINGS.items()
            ),
        )
    )


def _broker_rows() -> Iterable[tuple[str, str, str, str]]:
    about = _docstrings_of_fields()
    for name, item in FIELDS.items():
        default = "" if item.default is MISSING else _written(name, item.default)
        limits = item.metadata
        allowed = ", ".join(limits.get("allowed", ()))
        if "low" in limits:
            allowed = f"{_written(name, limits['low'])} to {_written(name, limits['high'])}"
        yield name, f"`{default}`" if default else "", allowed, about[name]


def _table(rows: Iterable[tuple[str, str, str, str]]) -> str:
    lines = ["| setting | default | allowed | meaning |", "|---|---|---|---|"]
    lines += [
        f"| `{name}` | {default} | {allowed} | {about} |" for name, default, allowed, about in rows
    ]
    return "\n".join(lines) + "\n"


def _written(name: str, value: object) -> str:
    """Return a value with its largest exact unit."""
    if isinstance(value, int) and value:
        units = _MS_UNITS if name.endswith("_ms") else _BYTE_UNITS if "bytes" in name else ()
        for unit, size in units:
            if value % size == 0:
                return f"{value // size}{unit}"
    return str(value)


def _docstrings_of_fields() -> dict[str, str]:
    """Return the docstring below each field, in one line."""
    body = next(
        node.body
        for node in ast.parse(inspect.getsource(config)).body
        if isinstance(node, ast.ClassDef) and node.name == BrokerConfig.__name__
    )
    found: dict[str, str] = {}
    for field, below in pairwise(body):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[name] = " ".join(text.split())
            case _:
                pass
    return found


if __name__ == "__main__":
    sys.stdout.write(describe())
