"""The public names of the faces of the client, and the methods of their classes."""

import inspect
from types import ModuleType
from typing import Final

import pytest

from tidelog import aio, blocking, surface, values

_OWN: Final = sorted(set(surface.__all__) - set(values.__all__))
_CLASSES: Final = [
    name
    for name in _OWN
    if isinstance(getattr(surface, name), type) and not name.endswith(("Iterator", "Broker"))
]
_OF_TRIO_ONLY: Final = {
    "Client": {"acting_for", "processor_of"},
    "Message": {"content", "lease", "place"},
    "Producer": {
        "begin_send",
        "is_traced",
        "producer_id",
        "send_open",
        "send_records",
        "send_values",
        "stage_for",
        "take_failure",
        "with_context",
    },
    "Queue": {"give_back"},
    "QueueSubscription": {"give_back"},
    "Transaction": {"open", "renew", "renewed_after"},
    "TransactionTask": {"previous_id"},
}
"""Parts of the core that other parts use."""
_NOT_BLOCKING: Final = {"Producer": {"wait_writable"}}
"""`send_nowait` waits by itself there."""


def _public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize("face", [aio, blocking], ids=["aio", "blocking"])
def test_every_face_has_the_public_names(face: ModuleType) -> None:
    own = [name for name in _OWN if face is aio or not name.endswith("Iterator")]
    assert sorted(face.__all__) == sorted([*own, *values.__all__])
    assert all(getattr(face, name) is getattr(values, name) for name in values.__all__)
    assert not [
        name
        for name in own
        if getattr(face, name) is getattr(surface, name) and name != "RunningBroker"
    ]


@pytest.mark.parametrize("face", [aio, blocking], ids=["aio", "blocking"])
@pytest.mark.parametrize("name", _CLASSES)
def test_classes_have_the_methods_of_the_client_with_the_same_arguments(
    name: str, face: ModuleType
) -> None:
    inner: type = getattr(surface, name)
    outer: type = getattr(face, name)
    left_out = _OF_TRIO_ONLY.get(name, set())
    assert left_out <= _public(inner) | set(vars(inner))
    expected = _public(inner) - left_out
    if face is blocking:
        expected -= _NOT_BLOCKING.get(name, set())

    assert expected - _public(outer) == set()
    for method in sorted(expected):
        given, wanted = getattr(outer, method), getattr(inner, method)
        if inspect.isfunction(given) and inspect.isfunction(wanted):
            assert _arguments(given) == _arguments(wanted), method
            if face is aio:
                assert inspect.iscoroutinefunction(given) == inspect.iscoroutinefunction(wanted)


def _arguments(method: object) -> list[tuple[str, object]]:
    assert callable(method)
    return [
        (each.name, each.default)
        for each in inspect.signature(method).parameters.values()
        if each.name != "config"  # Workers of other faces take their settings as keywords.
    ]
