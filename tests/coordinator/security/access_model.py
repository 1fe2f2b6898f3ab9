"""Random rules of access, decided by the table and by a naive model.

Run it as `python -m tests.coordinator.security.access_model [COUNT] [SEED]`.
"""

import random
import sys

from tidelog.coordinator.security.access import AccessTable, Decision
from tidelog.coordinator.security.records import Grant
from tidelog.wire.security.access_rules import ACTIONS

_PRINCIPALS = ("user:a", "user:b", "anonymous")
_SUBJECTS = (*_PRINCIPALS, "role:r", "role:s", "role:admin", "*")
_KINDS = ("topic", "queue")
_LETTERS = "ab"


def naive_decision(
    rules: list[Grant], principal: str, roles: list[str], *, action: str, kind: str, name: str
) -> bool:
    """Decide by one look at all rules."""
    if "admin" in roles:
        return True
    fitting = [
        rule
        for rule in rules
        if rule.principal in (principal, "*", *(f"role:{role}" for role in roles))
        and rule.kind == kind
        and (
            name.startswith(rule.pattern[:-1]) if rule.pattern[-1] == "*" else name == rule.pattern
        )
    ]
    if any(rule.is_deny and {action, "*"} & set(rule.actions) for rule in fitting):
        return False
    return any(
        not rule.is_deny and (action == "describe" or {action, "*"} & set(rule.actions))
        for rule in fitting
    )


def _word(draw: random.Random, shortest: int) -> str:
    return "".join(draw.choice(_LETTERS) for _ in range(draw.randint(shortest, 4)))


def _rule(draw: random.Random) -> Grant:
    kind = draw.choice(_KINDS)
    pattern = _word(draw, 0) + "*" if draw.random() < 0.5 else _word(draw, 1)
    count = draw.randint(1, 2)
    actions = ("*",) if draw.random() < 0.2 else tuple(draw.sample(ACTIONS[kind], count))
    # No rule is for the role of administrators; see `checked_rule`.
    subject = draw.choice([each for each in _SUBJECTS if each != "role:admin"])
    return Grant(subject, kind, pattern, tuple(sorted(actions)), draw.random() < 0.3)


def try_rule_set(draw: random.Random) -> list[str]:
    """Compare decisions under random rules, which come and go; return the differences."""
    table, rules = AccessTable(), list[Grant]()
    wrong: list[str] = []
    for _ in range(draw.randint(1, 12)):
        if rules and draw.random() < 0.25:
            table.remove(rules.pop(draw.randrange(len(rules))))
        else:
            rule = _rule(draw)
            if rule not in rules:
                rules.append(rule)
                table.add(rule)
    for _ in range(4):
        principal = draw.choice(_PRINCIPALS)
        roles = draw.sample(["r", "s", "admin"], draw.choice((0, 0, 1, 2)))
        kind, name = draw.choice(_KINDS), _word(draw, 1)
        action = draw.choice(ACTIONS[kind])
        decision = table.decide(principal, roles, action=action, kind=kind, name=name)
        expected = naive_decision(rules, principal, roles, action=action, kind=kind, name=name)
        asked = f"{principal} {roles} {action} {kind} {name} under {rules}"
        if decision.allowed != expected:
            wrong.append(f"{asked}: {decision}, not {expected}")
        if not _is_reasoned(decision, rules, roles):
            wrong.append(f"{asked}: {decision} has no rule that decides so")
        covers = table.allows_all(principal, roles, action=action, kind=kind, prefix=name)
        if covers and not all(
            naive_decision(rules, principal, roles, action=action, kind=kind, name=name + more)
            for more in ("", *_LETTERS, "ab", "bb")
        ):
            wrong.append(f"{asked}: every name from there on is allowed")
    return wrong


def _is_reasoned(decision: Decision, rules: list[Grant], roles: list[str]) -> bool:
    if decision.rule is None:
        return not decision.allowed
    return "admin" in roles or (
        decision.rule in rules and decision.rule.is_deny is not decision.allowed
    )


def main() -> None:
    """Compare as many rule sets as asked for; end with 1 after a difference."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    draw = random.Random(seed)
    for number in range(count):
        wrong = try_rule_set(draw)
        if wrong:
            sys.exit(f"rule set {number} of seed {seed}: " + "; ".join(wrong))
    sys.stdout.write(f"{count:,} rule sets of seed {seed}: the table and the model agree\n")


if __name__ == "__main__":
    main()
