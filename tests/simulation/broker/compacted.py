"""Plans of runs of a broker whose topic is compacted; see `tests.simulation.broker.plans`.

The plan is drawn as there and then made fit for compaction: segments are small, rounds are
frequent, and records have keys.
"""

from random import Random

import msgspec

from tests.simulation.broker import plans
from tests.simulation.broker.plans import Plan
from tests.simulation.machine.random_streams import RandomStreams


def draw_plan(seed: int, seconds: float) -> Plan:
    """Return the plan of a seed; each part of it has dice of its own."""
    plan = plans.draw_plan(seed, seconds)
    random = RandomStreams(f"compacted {seed}").stream("configuration")
    return msgspec.structs.replace(
        plan,
        topic_settings=plan.topic_settings | _draw_topic_settings(random),
        broker_settings=plan.broker_settings
        | {
            "log_cleaner_max_bytes_per_second": random.choice([64 << 10, 16 << 20]),
            "maintenance_interval_ms": random.choice([200, 1000]),
        },
        producers=[
            msgspec.structs.replace(each, has_keys=True, has_tombstones=True)
            for each in plan.producers
        ],
    )


def _draw_topic_settings(random: Random) -> dict[str, str]:
    settings = {
        "cleanup_policy": random.choice(["compact", "compact", "delete,compact"]),
        "segment_bytes": random.choice(["4096", "4096", "8KiB", "32KiB"]),
        "min_cleanable_dirty_ratio": random.choice(["0", "0", "0.3"]),
        "min_compaction_lag_ms": random.choice(["0", "0", "1s"]),
        "delete_retention_ms": random.choice(["0", "1s", "1d"]),
    }
    if random.random() < 0.3:
        settings["max_compaction_lag_ms"] = random.choice(["1s", "5s"])
    return settings
