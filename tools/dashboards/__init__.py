"""The dashboards of `deploy/grafana/` and their generator: `python -m tools.dashboards`."""
