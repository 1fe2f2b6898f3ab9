"""Lines of a dump and verdicts, for people and for programs."""

import json

import click

from tidelog.broker.inspection.findings import Verdict
from tidelog.broker.inspection.rows import Line
from tidelog.cli.log.view import (
    line_as_json,
    line_as_text,
    verdict_as_json,
    verdict_as_text,
)

RECORD: Line = {
    "file": "f",
    "type": "record",
    "offset": 7,
    "timestamp_ms": 0,
    "key": b"k",
    "value": b"\xff",
    "headers": [("name", b"v")],
}


def test_bytes_are_text_where_they_are_and_base64_where_not() -> None:
    found = json.loads(line_as_json(RECORD))

    assert (found["key"], found["value"]) == ("k", {"base64": "/w=="})
    assert found["headers"] == [["name", "v"]]
    assert "\n" not in line_as_json({**RECORD, "key": b"two\nlines"})


def test_a_record_is_one_line() -> None:
    assert line_as_text(RECORD) == (
        'record   7  1970-01-01 00:00:00 UTC  "k": {"base64":"/w=="}  headers [["name","v"]]'
    )


def test_what_is_bad_says_where_and_why() -> None:
    line: Line = {"file": "f", "type": "bad", "position": 64, "offset": 3, "reason": "torn"}

    assert click.unstyle(line_as_text(line)) == "bad      @64, offset 3: torn"


def test_a_verdict_has_a_line_for_each_problem() -> None:
    verdict = Verdict("f", ("torn", "late"), "a note")

    assert click.unstyle(verdict_as_text(verdict)) == "bad  f  (a note)\n       torn\n       late"
    assert json.loads(verdict_as_json(verdict)) == {
        "file": "f", "status": "bad", "problems": ["torn", "late"], "note": "a note"
    }  # fmt: skip
    assert click.unstyle(verdict_as_text(Verdict("g"))) == "ok   g"
