"""The log, for people and for programs."""

import json
import logging
import re
import sys

import pytest

from tidelog.cli.output.log_format import ConsoleFormatter, JsonFormatter, configure_logging


def record_of(
    message: str, *, level: int = logging.INFO, error: BaseException | None = None, **fields: object
) -> logging.LogRecord:
    exc_info = None if error is None else (type(error), error, error.__traceback__)
    record = logging.LogRecord("tidelog.event", level, "", 0, message, (), exc_info)
    record.created = 1_700_000_000.123
    record.fields = fields
    return record


def console_line(record: logging.LogRecord) -> str:
    """Return what people see, without the time."""
    line = ConsoleFormatter().format(record)
    time, _, rest = line.partition(" ")
    assert re.fullmatch(r"\d\d:\d\d:\d\d", time)
    return rest


def test_a_console_line_has_the_event_and_its_fields_in_order() -> None:
    record = record_of("broker_started", address="127.0.0.1:8433", node_id=1, data_dir="/d")

    assert (
        console_line(record) == "INFO broker_started address=127.0.0.1:8433 node_id=1 data_dir=/d"
    )


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (True, "true"),
        (None, "null"),
        (1.5, "1.5"),
        ("plain-text/with:signs", "plain-text/with:signs"),
        ("", '""'),
        ("two words", '"two words"'),
        ('a "quote"', '"a \\"quote\\""'),
        ("a=b", '"a=b"'),
        ("first\nsecond", '"first\\nsecond"'),
        ("\x1b[31mred", '"\\u001b[31mred"'),
        ("Grüße", "Grüße"),
        ({"a": "b"}, '{"a": "b"}'),
        (["x", 1], '["x", 1]'),
    ],
)
def test_a_value_is_quoted_where_it_would_be_ambiguous(value: object, shown: str) -> None:
    assert console_line(record_of("event", value=value)) == f"INFO event value={shown}"


def test_a_message_with_control_characters_stays_on_its_line() -> None:
    assert console_line(record_of("first\nsecond")) == 'INFO "first\\nsecond"'


def test_a_message_of_another_library_needs_no_fields() -> None:
    record = record_of("retrying", level=logging.WARNING)
    del vars(record)["fields"]

    assert console_line(record) == "WARNING retrying"
    assert json.loads(JsonFormatter().format(record))["event"] == "retrying"


def test_warnings_and_errors_are_colored_where_colors_are_seen() -> None:
    formatter = ConsoleFormatter(is_colored=True)

    assert "\x1b[33mWARNING\x1b[0m" in formatter.format(record_of("e", level=logging.WARNING))
    assert "\x1b[31mERROR\x1b[0m" in formatter.format(record_of("e", level=logging.ERROR))
    assert "\x1b" not in formatter.format(record_of("e"))


def test_a_defect_is_shown_with_its_traceback() -> None:
    with pytest.raises(IndexError) as caught:
        list[int]().pop()
    record = record_of("a request failed", level=logging.ERROR, error=caught.value)

    people = console_line(record)
    programs = json.loads(JsonFormatter().format(record))

    assert people.startswith("ERROR a request failed\nTraceback ")
    assert people.endswith("IndexError: pop from empty list")
    assert programs["traceback"].endswith("IndexError: pop from empty list")


def test_json_logs_have_one_object_per_line() -> None:
    record = record_of("broker_started", address="127.0.0.1:8433", was_clean=True, note="a\nb")

    line = JsonFormatter().format(record)

    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.123Z",
        "level": "info",
        "logger": "tidelog.event",
        "event": "broker_started",
        "address": "127.0.0.1:8433",
        "was_clean": True,
        "note": "a\nb",
    }


def test_a_field_does_not_hide_what_every_line_has() -> None:
    record = record_of("tick", time="noon", level_="x")

    found = json.loads(JsonFormatter().format(record))

    assert found["time_"] == "noon"
    assert found["time"].startswith("2023-")


def test_a_field_that_json_does_not_know_is_written_as_text() -> None:
    record = record_of("sent", topic_id=b"\x01")

    assert json.loads(JsonFormatter().format(record))["topic_id"] == "b'\\x01'"


@pytest.mark.usefixtures("restored_logging")
def test_the_level_chooses_what_of_tidelog_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("json", "warning")
    log = logging.getLogger("tidelog.event")

    log.info("too quiet")
    log.warning("loud enough", extra={"fields": {"n": 1}})
    logging.getLogger("other").info("too quiet")

    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["event"] == "loud enough"


@pytest.mark.usefixtures("restored_logging")
def test_the_log_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("console", "debug")

    logging.getLogger("tidelog.event").debug("looked", extra={"fields": {"at": "it"}})

    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.endswith(" DEBUG looked at=it\n")
    assert not sys.stderr.isatty()
