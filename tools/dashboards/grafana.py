"""Dashboards of Grafana as plain JSON.

The boards need two kinds of panels and few fields, so dictionaries of the published JSON model are
shorter than `grafana-foundation-sdk`, which has more than a thousand classes, one package for each
version of Grafana, and epoch versions that a range of versions cannot name.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

Json = dict[str, Any]

_COLUMNS: Final = 24
_DATASOURCE: Final[Json] = {"type": "prometheus", "uid": "${datasource}"}
_METRIC: Final = re.compile(r"\b((?:tidelog|process)_[a-z_]+)\b(\{)?")
SELECTOR: Final = 'job="tidelog", cluster="$cluster"'
"""Selector of each metric of brokers; a cluster without the target label `cluster` is the empty
text."""
_FRONT_SELECTOR: Final = SELECTOR.replace('"tidelog"', '"tidelog-sqs"')
"""Selector of each metric of SQS fronts, which are another job of Prometheus."""


@final
@dataclass(frozen=True, slots=True)
class Panel:
    """A panel with one or more expressions over time."""

    title: str
    description: str
    unit: str
    """Identifier of a unit of Grafana, such as `s`, `bytes`, `Bps`, or `short` for a count."""
    queries: dict[str, str]
    """Expressions by legend. A metric has the selector of the chosen cluster by itself."""
    is_stacked: bool = False

    def json(self) -> Json:
        """Return the panel without its place."""
        custom = {
            "drawStyle": "line",
            "fillOpacity": 20 if self.is_stacked else 5,
            "showPoints": "never",
            "stacking": {"mode": "normal" if self.is_stacked else "none"},
        }
        options = {
            "legend": {
                "calcs": ["lastNotNull", "max"],
                "displayMode": "table",
                "placement": "bottom",
                "showLegend": True,
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
        defaults = {"custom": custom, "min": 0}
        return _panel("timeseries", self, defaults=defaults, options=options)


@final
@dataclass(frozen=True, slots=True)
class Number:
    """A panel with the present value of one expression, red from a bound on."""

    title: str
    description: str
    unit: str
    queries: dict[str, str]
    red_from: float | None = 1
    red_below: float | None = None

    def json(self) -> Json:
        """Return the panel without its place."""
        steps: list[Json] = [{"color": "green", "value": None}]
        if self.red_below is not None:
            steps = [{"color": "red", "value": None}, {"color": "green", "value": self.red_below}]
        elif self.red_from is not None:
            steps.append({"color": "red", "value": self.red_from})
        defaults = {"thresholds": {"mode": "absolute", "steps": steps}}
        options = {
            "colorMode": "background",
            "graphMode": "none",
            "reduceOptions": {"calcs": ["lastNotNull"]},
            "textMode": "value_and_name" if len(self.queries) > 1 else "value",
        }
        return _panel("stat", self, defaults=defaults, options=options)


@final
@dataclass(frozen=True, slots=True)
class Row:
    """A titled group of panels, from left to right and from top to bottom."""

    title: str
    panels: Sequence[Panel | Number]


@final
@dataclass(frozen=True, slots=True)
class Variable:
    """A choice of label values above a dashboard; all of them at first."""

    name: str
    series: str
    """Selector of the series whose label of this name has the values."""
    is_all_any: bool = True
    """Whether "All" is any value, also none, and not only the listed values."""


@final
@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard."""

    uid: str
    title: str
    description: str
    variables: Sequence[Variable]
    rows: Sequence[Row]

    def json(self) -> Json:
        """Return the dashboard as Grafana imports it."""
        return {
            "uid": self.uid,
            "title": self.title,
            "description": self.description,
            "tags": ["tidelog"],
            "schemaVersion": 39,
            "version": 1,
            "editable": True,
            "graphTooltip": 1,
            "refresh": "30s",
            "time": {"from": "now-3h", "to": "now"},
            "timezone": "browser",
            "links": [_LINK],
            "annotations": {"list": []},
            "templating": {"list": [_CHOICE_OF_DATASOURCE, _CHOICE_OF_CLUSTER, *self._choices()]},
            "panels": list(_placed(self.rows)),
        }

    def text(self) -> str:
        """Return the text of the file of this dashboard."""
        return json.dumps(self.json(), indent=2) + "\n"

    def _choices(self) -> Iterator[Json]:
        for each in self.variables:
            choice = _choice(each.name, f"label_values({each.series}, {each.name})")
            every = {"includeAll": True, "current": {"text": ["All"], "value": ["$__all"]}}
            yield {**choice, **every, "multi": True, "allValue": ".*" if each.is_all_any else None}


def selected(expression: str) -> str:
    """Return an expression in which each metric has the selector of the chosen cluster."""

    def with_selector(found: re.Match[str]) -> str:
        selector = _FRONT_SELECTOR if found[1].startswith("tidelog_sqs_") else SELECTOR
        return f"{found[1]}{{{selector}" + (", " if found[2] else "}")

    return _METRIC.sub(with_selector, expression)


def _panel(kind: str, panel: Panel | Number, *, defaults: Json, options: Json) -> Json:
    return {
        "type": kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": _DATASOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, **defaults}, "overrides": []},
        "options": options,
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": _DATASOURCE,
                "expr": selected(expression),
                "legendFormat": legend,
            }
            for number, (legend, expression) in enumerate(panel.queries.items())
        ],
    }


def _placed(rows: Sequence[Row]) -> Iterator[Json]:
    number, top = 1, 0
    for row in rows:
        place = {"x": 0, "y": top, "w": _COLUMNS, "h": 1}
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "gridPos": place,
            "panels": [],
        }
        number, top, left, height = number + 1, top + 1, 0, 0
        for panel in row.panels:
            width, own_height = (4, 4) if isinstance(panel, Number) else (8, 8)
            if left + width > _COLUMNS:
                top, left, height = top + height, 0, 0
            place = {"x": left, "y": top, "w": width, "h": own_height}
            yield {"id": number, **panel.json(), "gridPos": place}
            number, left, height = number + 1, left + width, max(height, own_height)
        top += height


def _choice(name: str, query: str) -> Json:
    return {
        "name": name,
        "label": name,
        "type": "query",
        "datasource": _DATASOURCE,
        "query": {"query": query, "refId": "A"},
        "refresh": 2,
        "sort": 1,
    }


_CHOICE_OF_DATASOURCE: Final[Json] = {
    "name": "datasource",
    "label": "datasource",
    "type": "datasource",
    "query": "prometheus",
}
_CHOICE_OF_CLUSTER: Final = _choice(
    "cluster", 'label_values(tidelog_build_info{job="tidelog"}, cluster)'
)
_LINK: Final[Json] = {
    "type": "dashboards",
    "title": "tidelog",
    "tags": ["tidelog"],
    "asDropdown": False,
    "includeVars": True,
    "keepTime": True,
}
