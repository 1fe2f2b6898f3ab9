"""`promtool` accepts the rules, their unit tests, the configuration, and all expressions."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.system.prometheus.panels import panel_expressions
from tests.system.prometheus.prometheus import RULES


def promtool(*arguments: str) -> str:
    """Return the output of promtool, which must succeed."""
    result = subprocess.run(
        ["promtool", *arguments],
        cwd=RULES.parent,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert result.returncode == 0, result.stdout
    return result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "rules", "--lint-fatal", RULES.name),
        ("test", "rules", "tidelog.rules.test.yml"),
        ("check", "config", "--lint-fatal", "prometheus.yml"),
    ],
    ids=" ".join,
)
def test_promtool_accepts_the_files(arguments: tuple[str, ...]) -> None:
    assert "SUCCESS" in promtool(*arguments)


def test_expressions_of_all_panels_are_valid(tmp_path: Path) -> None:
    expressions = panel_expressions()
    rules = [
        {"record": f"panel:{number}", "expr": expression, "labels": {"panel": name}}
        for number, (name, expression) in enumerate(expressions.items())
    ]
    file = tmp_path / "panels.yml"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}), "utf-8")

    assert f"{len(expressions)} rules found" in promtool("check", "rules", str(file))
    assert len(expressions) > 60
