"""Runs of clusters with `audit = required`: each change that took effect has its intent."""

# Replaces a method that reads private state.
# pyright: reportPrivateUsage=false

from functools import partial

import msgspec
import pytest

from tests.simulation.cluster.audit_reader import AuditReader
from tests.simulation.cluster.plans import ClusterPlan, draw_plan
from tests.simulation.cluster.run import RunSetting, run
from tests.simulation.cluster.sometimes import PROBES
from tests.simulation.report import RunReport
from tidelog.broker.audit.audit_log import AuditLog
from tidelog.broker.audit.event import AuditEvent
from tidelog.broker.audit.record import INTENT

SECONDS = 4.0


def audited_plan(seed: int, seconds: float = SECONDS) -> ClusterPlan:
    """Return the plan of a seed with audit; its acknowledged records are on disks."""
    plan = draw_plan(seed, seconds)
    settings = {**plan.broker_settings, "audit": "required"}
    topics = {**plan.topic_settings, "durability": "fsync"}
    return msgspec.structs.replace(plan, broker_settings=settings, topic_settings=topics)


def audited_run(plan: ClusterPlan) -> RunReport[ClusterPlan]:
    return run(plan, setting=RunSetting(PROBES, partial(AuditReader, plan=plan)))


@pytest.mark.parametrize("seed", range(3))
def test_each_change_that_took_effect_has_an_intent(seed: int) -> None:
    report = audited_run(audited_plan(seed))

    assert report.checker is None, f"seed {seed} breaks a promise: {report.problem}"
    assert report.counts["audited changes"] > 0
    assert report.counts["audit intents"] >= report.counts["audited changes"]


async def begin_without_waiting(log: AuditLog, event: AuditEvent, *, may_pass: bool) -> str:
    del may_pass
    record = log._records.of_event(event, now_ms=0, stage=INTENT)
    log._put(record)
    return record.id


def test_a_broker_that_does_not_wait_for_its_intent_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(AuditLog, "begin", begin_without_waiting)

    # Half of the seeds find it; a change of anything else moves which ones.
    found = (audited_run(audited_plan(seed, 15.0)).checker for seed in range(16, 26))

    assert "EachChangeIsAudited" in found
