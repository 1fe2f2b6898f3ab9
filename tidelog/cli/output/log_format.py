"""The formatters of broker logs, one event per line, as text or JSON.

The name of an event and its values are in `extra={"event": ..., "fields": {...}}`.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import cast, final

import click

_COLORS = {logging.WARNING: "yellow", logging.ERROR: "red", logging.CRITICAL: "red"}
_OWN_KEYS = ("time", "level", "logger", "event", "traceback")
_PLAIN_EXCLUDES = frozenset(' "=')


def configure_logging(log_format: str, level: str) -> None:
    """Log to standard error: events of tidelog from `level` on, others from WARNING on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        JsonFormatter()
        if log_format == "json"
        else ConsoleFormatter(is_colored=sys.stderr.isatty())
    )
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.captureWarnings(capture=True)
    logging.getLogger("tidelog").setLevel(level.upper())


@final
class ConsoleFormatter(logging.Formatter):
    """`12:00:01 INFO broker_started address=127.0.0.1:8433 data_dir=/var/lib/tidelog`."""

    def __init__(self, *, is_colored: bool = False) -> None:
        """Color warnings and errors if `is_colored`."""
        super().__init__(datefmt="%H:%M:%S")
        self._is_colored = is_colored

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; a traceback follows on its own lines."""
        level = record.levelname
        if self._is_colored and record.levelno in _COLORS:
            level = click.style(level, fg=_COLORS[record.levelno])
        words = [self.formatTime(record, self.datefmt), level, _one_line(_event(record))]
        words += [f"{name}={_shown(value)}" for name, value in _fields(record).items()]
        line = " ".join(words)
        if record.exc_info:
            return f"{line}\n{self.formatException(record.exc_info)}"
        return line


@final
class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (UTC), level, logger, event, and the event's fields.

    A field with one of these names gets a trailing underscore.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        found: dict[str, object] = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": _event(record),
        }
        for name, value in _fields(record).items():
            found[f"{name}_" if name in _OWN_KEYS else name] = value
        if record.exc_info:
            found["traceback"] = self.formatException(record.exc_info)
        return json.dumps(found, default=str)


def _event(record: logging.LogRecord) -> str:
    """Return the name of an event, or the message of another library."""
    return cast("str", getattr(record, "event", "")) or record.getMessage()


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return cast("dict[str, object]", getattr(record, "fields", {}))


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or isinstance(value, (dict, list, tuple)):
        return json.dumps(value, default=str)
    text = str(value)
    is_plain = text.isprintable() and text != "" and _PLAIN_EXCLUDES.isdisjoint(text)
    return text if is_plain else json.dumps(text, ensure_ascii=not text.isprintable())


def _one_line(text: str) -> str:
    return text if text.isprintable() else json.dumps(text)
