"""`tidelog serve --print-config`."""

import json
from pathlib import Path

import pytest

from tidelog.cli import main


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "tidelog.toml"
    path.write_text(
        'listen = "0.0.0.0:1"\nnode_id = 2\n[topic_defaults]\nretention_ms = "1d"\n',
        encoding="ascii",
    )
    return str(path)


def test_each_setting_is_shown_with_who_said_it(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIDELOG_NODE_ID", "3")
    monkeypatch.setenv("TIDELOG_LISTEN", "127.0.0.1:2")

    status = main.run(
        ["serve", "--print-config", "--config", file, "--listen", "127.0.0.1:3", "--json"]
    )

    found = json.loads(capsys.readouterr().out)
    assert status == 0
    assert found["listen"] == {"value": "127.0.0.1:3", "source": "--listen"}
    assert found["node_id"] == {"value": 3, "source": "TIDELOG_NODE_ID"}
    assert found["topic_defaults"] == {"value": {"retention_ms": "1d"}, "source": file}
    assert found["data_dir"] == {"value": "tidelog-data", "source": "default"}


def test_people_see_a_table_in_the_words_of_the_file(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main.run(["serve", "--print-config", "--config", file])

    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert status == 0
    assert lines[0] == ["SETTING", "VALUE", "SOURCE"]
    assert ["listen", '"0.0.0.0:1"', file] in lines
    assert ["node_id", "2", file] in lines
    assert ["max_open_files", "512", "default"] in lines
    assert ["topic_defaults", "retention_ms", "=", '"1d"', file] in lines


def test_what_is_wrong_is_said_with_who_said_it(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIDELOG_MAX_CONNECTIONS", "many")

    status = main.run(["serve", "--print-config", "--config", file])

    assert status == 1
    assert capsys.readouterr().err.startswith(
        "error: TIDELOG_MAX_CONNECTIONS: max_connections is 'many'"
    )
