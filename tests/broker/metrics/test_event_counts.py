"""Events are counted and passed on."""

from tidelog.broker.metrics.event_counts import CountingProbe


def unheard(event: str, **fields: object) -> None:
    del event, fields


def test_events_are_counted_by_name_and_severity_and_passed_on() -> None:
    heard: list[tuple[str, dict[str, object]]] = []

    def hear(event: str, **fields: object) -> None:
        heard.append((event, fields))

    probe = CountingProbe(hear)

    probe("topic_created", topic="a")
    probe("node_fenced", severity="warning", node_id=2)
    probe("node_fenced", severity="info", node_id=3)

    assert probe.events == {
        ("topic_created", "info"): 1,
        ("node_fenced", "warning"): 1,
        ("node_fenced", "info"): 1,
    }
    assert probe.count("node_fenced") == 2
    assert heard[0] == ("topic_created", {"topic": "a"})
    assert len(heard) == 3


def test_elections_and_isr_changes_are_counted_by_partition() -> None:
    probe = CountingProbe(unheard)

    probe("leaders_elected", kind="failover", count=12)
    probe("leaders_elected", kind="planned", count=2)
    probe("isr_shrunk", count=3)
    probe("isr_grown", count=1)

    assert probe.elections == {"failover": 12, "planned": 2}
    assert probe.isr_changes == {"shrink": 3, "expand": 1}


def test_damage_is_counted_when_it_is_found() -> None:
    probe = CountingProbe(unheard)

    probe("log_damaged", topic="a")
    probe("log_status_changed", status="damaged")
    probe("log_status_changed", status="online")
    probe("broker_started", status="damaged")

    assert probe.damage == 2
