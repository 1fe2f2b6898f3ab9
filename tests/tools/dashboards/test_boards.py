"""The files of `deploy/grafana/` are those of the generator, and fit the metrics of brokers."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.tools.expressions import METRICS, complaints, metrics_of
from tidelog.wire.metrics.metric import MetricKind
from tools.dashboards.__main__ import FOLDER
from tools.dashboards.boards import BOARDS
from tools.dashboards.grafana import Board


def panels_of(board: Board) -> Iterator[dict[str, Any]]:
    return (panel for panel in board.json()["panels"] if panel["type"] != "row")


def targets_of(board: Board) -> Iterator[tuple[str, dict[str, Any]]]:
    return ((panel["title"], target) for panel in panels_of(board) for target in panel["targets"])


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_the_file_is_up_to_date(board: Board) -> None:
    stored = (FOLDER / f"{board.uid}.json").read_text(encoding="utf-8")

    assert stored == board.text(), "run: make generate"
    assert json.loads(stored)["uid"] == board.uid


def test_each_file_is_of_a_board() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == {board.uid for board in BOARDS}


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_each_panel_says_its_meaning(board: Board) -> None:
    panels = list(panels_of(board))

    assert all(
        panel["title"] and panel["description"].endswith(".") and panel["targets"]
        for panel in panels
    )
    assert all(panel["fieldConfig"]["defaults"]["unit"] for panel in panels)
    assert all(target["legendFormat"] for _, target in targets_of(board))


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_panels_have_places_of_their_own(board: Board) -> None:
    panels = board.json()["panels"]
    cells = Counter(
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    )

    assert max(cells.values()) == 1
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in panels}) == len(panels)


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_expressions_fit_the_catalog(board: Board) -> None:
    findings = [
        f"{title}: {finding}"
        for title, target in targets_of(board)
        for finding in complaints(target["expr"])
    ]

    assert not findings, "\n" + "\n".join(findings)


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_legends_name_labels_that_the_result_has(board: Board) -> None:
    for title, target in targets_of(board):
        named = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        grouped = set(
            re.findall(r"\w+", " ".join(re.findall(r"(?:by|left) \(([^)]*)\)", target["expr"])))
        )

        assert named <= grouped, title


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_variables_of_expressions_exist(board: Board) -> None:
    document = board.json()
    known = {each["name"] for each in document["templating"]["list"]} | {"__rate_interval"}

    assert set(re.findall(r"\$\{?(\w+)", json.dumps(document))) - {"__all"} <= known


def test_every_metric_is_on_a_board() -> None:
    shown = {
        re.sub(r"_bucket$", "", name)
        for board in BOARDS
        for _, target in targets_of(board)
        for name in metrics_of(target["expr"])
    }
    listed = {
        name
        for board in BOARDS
        for each in board.json()["templating"]["list"]
        for name in metrics_of(str(each["query"]))
    }

    assert METRICS.keys() - shown - listed == set()
    assert {METRICS[name].kind for name in shown} == set(MetricKind)
