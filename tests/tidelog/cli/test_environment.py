"""Variables TIDELOG_* of the environment."""

import os
import re
from pathlib import Path

import pytest

from tests.paths import ROOT
from tidelog.broker.config.broker_config import FIELDS
from tidelog.cli import main
from tidelog.cli.environment import check_environment

OF_KUBERNETES = {
    "TIDELOG_PORT": "tcp://10.0.0.11:8433",
    "TIDELOG_PORT_8433_TCP": "tcp://10.0.0.11:8433",
    "TIDELOG_PORT_8433_TCP_ADDR": "10.0.0.11",
    "TIDELOG_PORT_8433_TCP_PORT": "8433",
    "TIDELOG_PORT_8433_TCP_PROTO": "tcp",
    "TIDELOG_SERVICE_HOST": "10.0.0.11",
    "TIDELOG_SERVICE_PORT": "8433",
    "TIDELOG_SERVICE_PORT_BROKER": "8433",
    "TIDELOG_BROKER_PORT": "tcp://10.0.0.11:8433",
    "TIDELOG_BROKER_PORT_8480_TCP_ADDR": "10.0.0.11",
    "TIDELOG_BROKER_SERVICE_HOST": "10.0.0.11",
    "TIDELOG_BROKERS_SERVICE_PORT_HTTP": "8480",
}


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("TIDELOG_BROKERS", "TIDELOG_BROKER"),
        ("TIDELOG_BOOTSTRAP_SERVERS", "TIDELOG_BROKER"),
        ("TIDELOG_CONFG", "TIDELOG_CONFIG"),
        ("TIDELOG_DATADIR", "TIDELOG_DATA_DIR"),
        ("TIDELOG_LISTENERS", "TIDELOG_LISTEN"),
        ("TIDELOG_LOGLEVEL", "TIDELOG_LOG_LEVEL"),
        ("TIDELOG_PEER", "TIDELOG_PEERS"),
        ("TIDELOG_data_dir", "TIDELOG_DATA_DIR"),
    ],
)
def test_a_mistyped_variable_is_refused_with_the_right_one(
    variable: str,
    meant: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(variable, "x")

    assert main.run(["topic", "list"]) == 2
    assert capsys.readouterr().err == (
        f"error: there is no variable {variable}; did you mean {meant}?\n"
    )


def test_every_variable_of_tidelog_is_known() -> None:
    settings = {f"TIDELOG_{name.upper()}": "x" for name in FIELDS}

    check_environment(settings | {"TIDELOG_BROKER": "x", "TIDELOG_CONFIG": "x"})


def test_variables_that_kubernetes_sets_for_services_are_ignored() -> None:
    check_environment(OF_KUBERNETES)


@pytest.mark.parametrize(
    "variable",
    [
        "TIDELOG_BROKER_URL",
        "TIDELOG_HOME",
        "TIDELOG_HOST",
        "TIDELOG_IMAGE",
        "TIDELOG_OPTS",
        "TIDELOG_PASSWORD",
        "TIDELOG_TOPIC",
        "TIDELOG_VERSION",
        "_TIDELOG_COMPLETE",
        "MY_TIDELOG_BROKERS",
    ],
)
def test_variables_of_other_programs_are_ignored(variable: str) -> None:
    check_environment({variable: "x"})


def test_variables_of_the_tests_are_ignored() -> None:
    files = [
        Path(ROOT, "Makefile"),
        *Path(ROOT, "tests").rglob("*.py"),
        *Path(ROOT, ".ci").iterdir(),
    ]
    found = {
        name
        for file in files
        if file != Path(__file__) and file.is_file()
        for name in re.findall(r"\bTIDELOG_[A-Z_]+", file.read_text(encoding="utf-8"))
    }

    assert "TIDELOG_SPARK_TESTS" in found
    check_environment(dict.fromkeys(found, "x"))
    check_environment(os.environ)
