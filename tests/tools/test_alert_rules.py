"""The alerts of `deploy/prometheus/`: their metrics, texts, runbooks and unit tests.

`tests/system/prometheus/` gives the same files to Prometheus.
"""

import re
from typing import Any, Final

import pytest
import yaml

from tests.paths import ROOT
from tests.test_docs import anchors
from tests.tools.expressions import complaints
from tidelog.client.admin.alerts import SEVERITIES

FOLDER: Final = ROOT / "deploy" / "prometheus"
GROUPS: Final[dict[str, dict[str, Any]]] = {
    group["name"]: {rule["alert"]: rule for rule in group["rules"]}
    for group in yaml.safe_load((FOLDER / "tidelog.rules.yml").read_text(encoding="utf-8"))[
        "groups"
    ]
}
RULES: Final[dict[str, Any]] = {
    name: rule for group in GROUPS.values() for name, rule in group.items()
}
OF_OWNERS: Final = GROUPS["tidelog-owners"]


def test_all_conditions_have_an_alert() -> None:
    assert GROUPS.keys() == {"tidelog-operators", "tidelog-owners"}
    assert OF_OWNERS.keys() == {"QueueTooOld", "QueueTooDeep", "QueueDeadLetters", "GroupLag"}
    assert len(RULES) == 22


@pytest.mark.parametrize("name", SEVERITIES)
def test_an_alert_of_the_command_has_a_rule_of_the_same_severity(name: str) -> None:
    assert RULES[name]["labels"]["severity"] == SEVERITIES[name]


@pytest.mark.parametrize("name", RULES)
def test_an_alert_fits_the_catalog_and_has_its_labels_and_texts(name: str) -> None:
    rule = RULES[name]
    labels, texts = rule["labels"], rule["annotations"]

    assert not list(complaints(rule["expr"]))
    assert labels["service"] == "tidelog"
    assert labels["severity"] in {"critical", "warning"}
    assert texts.keys() == {"summary", "description", "runbook_url"}
    assert "by (" not in rule["expr"] or "by (cluster" in rule["expr"], "clusters are separate"
    assert "$value" in texts["summary"] or rule["expr"].startswith(("absent", "("))
    assert texts["description"].endswith(".")


@pytest.mark.parametrize("name", OF_OWNERS)
def test_alerts_of_owners_compare_with_an_exported_threshold(name: str) -> None:
    expression = OF_OWNERS[name]["expr"]

    assert re.search(r"topk by \(cluster, (queue|group)\) \(1, tidelog_\w+_alert_\w+\)", expression)
    assert "owner" in expression, "Alertmanager routes by the owner"


@pytest.mark.parametrize("name", RULES)
def test_the_runbook_of_an_alert_is_a_heading_of_the_docs(name: str) -> None:
    base, path = RULES[name]["annotations"]["runbook_url"].split(" }}/")
    page, anchor = path.split("/#")

    assert base == "{{ $externalLabels.tidelog_docs"
    assert anchor == name.lower()
    assert anchor in anchors((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", RULES)
def test_unit_tests_see_each_alert_fire_and_not_fire(name: str) -> None:
    tests = yaml.safe_load((FOLDER / "tidelog.rules.test.yml").read_text(encoding="utf-8"))["tests"]
    fires = {
        bool(each["exp_alerts"])
        for test in tests
        for each in test["alert_rule_test"]
        if each["alertname"] == name
    }

    assert fires == {True, False}
