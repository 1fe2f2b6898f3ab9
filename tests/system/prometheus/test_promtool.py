"""`promtool` accepts the rules, their unit tests, the configuration, and all expressions."""

import json
import subprocess
from pathlib import Path
from urllib.request import urlopen

import pytest
import trio

import tidelog
from tests.system.prometheus.panels import panel_expressions
from tests.system.prometheus.prometheus import RULES


def promtool(*arguments: str, text: str = "") -> str:
    """Return the output of promtool, which must succeed; it reads `text`."""
    result = subprocess.run(
        ["promtool", *arguments],
        cwd=RULES.parent,
        check=False,
        input=text,
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


async def test_promtool_accepts_the_metrics_of_a_broker(tmp_path: Path) -> None:
    async with (
        tidelog.open_broker(tmp_path, http_listen="127.0.0.1:0") as broker,
        tidelog.connect(broker.address) as client,
    ):
        await client.admin.create_topic("orders")
        await client.admin.create_queue("mail", alert_age="5min", owner='the "mail" team')
        await client.admin.alter_group("billing", set={"owner": "payments", "alert_lag": 300})
        async with client.producer() as producer:
            await producer.send("orders", b"1")
        await client.queue("mail").send(b"2")
        (message,) = await client.queue("mail").receive(wait=5)
        await message.delete()
        for path in ("/metrics", "/metrics/partitions?topic=*"):
            text = await trio.to_thread.run_sync(read_page, f"http://{broker.http_address}{path}")
            # It lints, too, and prints nothing if all is well.
            assert promtool("check", "metrics", text=text) == ""
            assert "tidelog_" in text


def read_page(url: str) -> str:
    """Return the text of a page."""
    with urlopen(url) as reply:
        text: str = reply.read().decode()
        return text
