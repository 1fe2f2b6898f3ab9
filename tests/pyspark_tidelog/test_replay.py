"""Tests of the demo's replay without Spark; `tests/system/spark` runs it with Spark."""

import json
import sys
from typing import NoReturn

import pytest

from pyspark_tidelog import replay
from tidelog.spark_connector.java import ADVICE, JavaMissingError


def ignore(number: int, handler: object) -> None:
    del number, handler


def test_the_replay_without_spark_names_the_extra_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(replay, "failure", ImportError("No module named 'pyspark'"))
    monkeypatch.setattr(sys, "argv", ["replay", "127.0.0.1:1", "flights", "delays"])
    monkeypatch.setattr("signal.signal", ignore)

    replay.main()

    found = json.loads(capsys.readouterr().out)
    why = "Spark is not installed (No module named 'pyspark'); pip install 'tidelog[spark]'"
    assert found == {"missing": why}


def test_the_replay_without_java_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_none() -> NoReturn:
        raise JavaMissingError(ADVICE)

    monkeypatch.setattr(replay, "failure", None)
    monkeypatch.setattr(replay, "prepare_java", find_none)

    assert replay.replay("127.0.0.1:1", "flights", "delays") == {"missing": ADVICE}


def test_an_error_of_spark_is_shortened_to_its_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: str, **__: str) -> NoReturn:
        raise RuntimeError(
            "[PYTHON] it failed\nTraceback:\n  tidelog.wire.errors.ConfigError: no topic\nX"
        )

    monkeypatch.setattr(replay, "failure", None)
    monkeypatch.setattr(replay, "prepare_java", lambda: None)
    monkeypatch.setattr(replay, "_replay", fail)

    found = replay.replay("127.0.0.1:1", "flights", "delays")

    assert found == {"missing": "Spark failed: tidelog.wire.errors.ConfigError: no topic"}
