"""Alerts of owners fire in a real Prometheus with the label `owner`, and clear."""

from pathlib import Path

import trio

import tidelog
from tests.system.integration.nodes import free_ports
from tests.system.integration.processes import serving
from tests.system.prometheus.prometheus import OF_THE_MACHINE, names, prometheus


async def test_alerts_of_an_old_message_and_of_a_dead_letter_fire_and_clear(
    tmp_path: Path,
) -> None:
    (port,) = free_ports(1)
    target = f"127.0.0.1:{port}"
    await trio.Path(tmp_path / "prometheus").mkdir()
    async with (
        serving(tmp_path / "broker", "--http-listen", target) as broker,
        tidelog.connect(broker.address) as client,
        prometheus(tmp_path / "prometheus", {"": [target]}) as database,
    ):
        await client.admin.create_queue("orders", owner="payments", alert_age=1, alert_depth=10)
        await client.admin.create_queue("dead")
        await client.admin.create_queue(
            "mails", owner="mail", alert_dead_letters=0, dead_letter_queue="dead"
        )
        await client.queue("orders").send(b"order")
        await client.queue("mails").send(b"mail")
        (mail,) = await client.queue("mails").receive(1, wait=5)
        await mail.reject("not an address")

        alerts = await database.wait_alerts(
            lambda alerts: {"QueueTooOld", "QueueDeadLetters"} <= names(alerts)
        )

        owners = {
            (each["alertname"], each["queue"], each["owner"])
            for each in alerts
            if each["alertname"] not in OF_THE_MACHINE
        }
        assert owners == {
            ("QueueTooOld", "orders", "payments"),
            ("QueueDeadLetters", "mails", "mail"),
        }
        for queue in ("orders", "dead"):
            (message,) = await client.queue(queue).receive(1, wait=5)
            await message.delete()
        await database.wait_alerts(lambda alerts: not names(alerts) - OF_THE_MACHINE)
        assert await database.unhealthy_rules() == []
