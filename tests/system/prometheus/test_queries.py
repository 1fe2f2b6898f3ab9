"""Expressions of panels and alerts have results when brokers report every metric."""

from pathlib import Path

from tests.system.prometheus.exporter import exporting
from tests.system.prometheus.panels import panel_expressions
from tests.system.prometheus.prometheus import names, prometheus

ALERTS = {"UnderReplicated", "UncleanElection", "DamageFound", "DiskReadOnly"}


async def test_every_panel_has_data_with_a_cluster_label_and_without(tmp_path: Path) -> None:
    with exporting() as one, exporting() as other:
        targets: dict[str, list[str]] = {"": [one], "main": [other]}
        async with prometheus(tmp_path, targets, fronts=targets) as database:
            await database.wait_samples("min(count_over_time(up[1m])) > bool 2", 1)
            empty = [
                f"{cluster}: {name}"
                for cluster in targets
                for name, expression in panel_expressions(cluster).items()
                if not await database.samples(expression)
            ]
            alerts = await database.wait_alerts(
                lambda alerts: all(
                    names(each for each in alerts if each.get("cluster", "") == cluster) > ALERTS
                    for cluster in targets
                )
            )
            unhealthy = await database.unhealthy_rules()

    assert empty == []
    assert unhealthy == []
    assert "ScrapeMissing" not in names(alerts)
