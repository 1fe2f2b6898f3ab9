"""Tests of plans: a seed expands to plain data, and a run depends only on that data."""

from pathlib import Path

import msgspec
import pytest
from msgspec import to_builtins
from msgspec.structs import fields

from tests.simulation.broker.plans import (
    FAULT_GAPS_S,
    Plan,
    ProducerPlan,
    ReadingPlan,
    draw_plan,
    load_plan,
    to_json,
)
from tests.simulation.broker.run import run
from tests.simulation.broker.sometimes import PROBES
from tests.simulation.kinds import BROKER
from tidelog.broker.config.broker_config import BrokerConfig

KEPT = sorted(BROKER.kept_plans.glob("*.json"))


def test_a_seed_always_expands_to_the_same_plan() -> None:
    assert draw_plan(7, 30.0) == draw_plan(7, 30.0)
    assert draw_plan(7, 30.0) != draw_plan(8, 30.0)


def test_a_plan_survives_a_round_trip_through_a_file(tmp_path: Path) -> None:
    plan = draw_plan(7, 30.0)
    path = tmp_path / "plan.json"
    path.write_text(to_json(plan))

    assert load_plan(path) == plan


def test_all_kinds_of_faults_are_drawn_and_none_is_in_every_plan() -> None:
    plans = [draw_plan(seed, 60.0) for seed in range(40)]
    kinds = [{fault.kind for fault in plan.faults} for plan in plans]

    assert set().union(*kinds) == set(FAULT_GAPS_S)
    assert not set(FAULT_GAPS_S).intersection(*kinds)


def test_a_missing_field_of_a_kept_plan_has_its_old_value(tmp_path: Path) -> None:
    before = {field.name for field in fields(Plan) if field.required}
    old = {name: value for name, value in to_builtins(draw_plan(7, 30.0)).items() if name in before}
    newer = {field.name for field in fields(ProducerPlan) if not field.required}
    old["producers"] = [
        {name: value for name, value in producer.items() if name not in newer}
        for producer in old["producers"]
    ]
    path = tmp_path / "plan.json"
    path.write_bytes(msgspec.json.encode(old))

    plan = load_plan(path)

    assert {each.max_in_flight for each in plan.producers} == {5}
    assert {each.ack_timeout_ms for each in plan.producers} == {1000}
    assert (plan.reading, plan.clock_error_s, plan.clock_drift) == (ReadingPlan(), 0.0, 0.0)


def test_a_broker_can_be_configured_as_every_plan_says() -> None:
    plans = [draw_plan(seed, 1.0) for seed in range(100)]

    for plan in plans:
        limits = plan.broker_settings
        config = BrokerConfig(**limits)  # type: ignore[arg-type]  # numbers
        assert {name: getattr(config, name) for name in limits} == limits
    assert {plan.broker_settings["max_in_flight_requests_per_connection"] for plan in plans} == {
        4096,
        2,
        1,
    }


def test_dice_choose_a_valid_index() -> None:
    """Dice choose the element at their fraction of the list; 1 would be behind the last."""
    faults = draw_plan(1_000_183, 60.0).faults

    assert max(fault.dice for fault in faults) == 0.9999
    assert min(fault.dice for fault in faults) >= 0


def test_the_removal_of_a_fault_leaves_the_others_unchanged() -> None:
    plan = draw_plan(3, 60.0)
    without = msgspec.structs.replace(plan, faults=plan.faults[1:])

    assert without.faults == plan.faults[1:]
    assert without.producers == plan.producers


def test_a_run_is_a_function_of_its_plan() -> None:
    plan = draw_plan(4, 4.0)

    one, other = run(plan), run(plan)

    assert one == other
    assert one.checker is None
    assert one.sometimes.keys() <= PROBES.keys()


def test_a_plan_with_another_seed_is_another_run() -> None:
    plan = draw_plan(4, 2.0)

    one, other = run(plan), run(msgspec.structs.replace(plan, seed="other"))

    assert one.fingerprint != other.fingerprint


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_a_plan_that_failed_once_does_not_fail_again(path: Path) -> None:
    plan: Plan = load_plan(path)

    report = run(plan)

    assert report.checker is None, report.problem
