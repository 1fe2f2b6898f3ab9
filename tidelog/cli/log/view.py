"""The output of `tidelog log`, as text and JSON.

Pure: no clock, no I/O.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast

import click

from tidelog.broker.inspection.findings import FileCheck
from tidelog.broker.inspection.rows import BAD, Row
from tidelog.cli.output.record_format import text_of
from tidelog.cli.output.tables import counted
from tidelog.cli.output.times import moment_text

_CODECS: Final = {0: "none", 1: "lz4", 2: "zstd"}
_CODEC_MASK: Final = 0x0F


def line_as_json(line: Row) -> str:
    """Return one line of a dump as one JSON object."""
    return json.dumps(_jsonable(line), ensure_ascii=False, separators=(",", ":"))


def line_as_text(line: Row) -> str:
    """Return one line of a dump as text, without the file name."""
    shape = _SHAPES.get(str(line["type"]), _any_text)
    text = shape(line)
    return click.style(text, fg="red") if line["type"] == BAD else text


def findings_as_json(check: FileCheck) -> str:
    """Return the verdict of a file as one JSON object."""
    return line_as_json(
        {
            "file": check.path,
            "status": "ok" if check.is_ok else "bad",
            "problems": list(check.problems),
            "note": check.note,
        }
    )


def findings_as_text(check: FileCheck) -> str:
    """Return the verdict of a file as one line, and one more for each problem."""
    note = f"  ({check.note})" if check.note else ""
    if check.is_ok:
        return f"{click.style('ok ', fg='green')}  {check.path}{note}"
    problems = "".join(f"\n       {problem}" for problem in check.problems)
    return f"{click.style('bad', fg='red', bold=True)}  {check.path}{note}{problems}"


def _jsonable(value: object) -> object:
    if isinstance(value, bytes):
        return text_of(value)
    if isinstance(value, Mapping):
        entries = cast("Mapping[str, object]", value)
        return {name: _jsonable(item) for name, item in entries.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_jsonable(item) for item in cast("Sequence[object]", value)]
    return value


def _batch_text(line: Row) -> str:
    base_offset = cast("int", line["base_offset"])
    last_offset = base_offset + cast("int", line["last_offset_delta"])
    flags = cast("int", line["flags"])
    codec = _CODECS.get(flags & _CODEC_MASK, str(flags & _CODEC_MASK))
    parts = [
        f"batch    @{line['position']:<10}",
        f"offsets {base_offset}..{last_offset}",
        counted(cast("int", line["record_count"]), "record"),
        f"epoch {line['leader_epoch']}",
        f"payload {line['payload_length']} B {codec}",
    ]
    if line["record_count"]:  # Compaction leaves headers of empty batches, which have no time.
        parts.append(moment_text(cast("int", line["max_timestamp_ms"])))
    if line["producer_id"]:
        sequence = f"{line['producer_epoch']}, sequence {line['base_sequence']}"
        parts.append(f"producer {line['producer_id']} epoch {sequence}")
    return "  ".join(parts)


def _record_text(line: Row) -> str:
    key, value, headers = (_jsonable(line[name]) for name in ("key", "value", "headers"))
    moment = moment_text(cast("int", line["timestamp_ms"]))
    tail = f"  headers {_compact(headers)}" if headers else ""
    return f"record   {line['offset']}  {moment}  {_compact(key)}: {_compact(value)}{tail}"


def _bad_text(line: Row) -> str:
    where = [f"@{line['position']}"] if "position" in line else []
    if line.get("offset") is not None:
        where.append(f"offset {line['offset']}")
    return f"bad      {', '.join(where)}: {line['reason']}"


def _any_text(line: Row) -> str:
    fields = {name: item for name, item in line.items() if name not in ("file", "type")}
    words = " ".join(f"{name}={_compact(item)}" for name, item in fields.items())
    return f"{line['type']:<8} {words}"


def _compact(value: object) -> str:
    return json.dumps(_jsonable(value), ensure_ascii=False, separators=(",", ":"))


_SHAPES: Final[Mapping[str, Callable[[Row], str]]] = {
    "batch": _batch_text,
    "record": _record_text,
    BAD: _bad_text,
}
