"""How far a query is behind can be read from its progress, whatever form that has."""

import json
from types import SimpleNamespace
from typing import Any

from tidelog.client.topic_partition import TopicPartition
from tidelog.spark_connector.lag import lag

IDS = {"@ids": {"orders": "00" * 16}}
PROGRESS: dict[str, list[dict[str, Any]]] = {
    "sources": [
        {
            "endOffset": {"orders": {"0": 5, "1": 9}, **IDS},
            "latestOffset": {"orders": {"0": 7, "1": 9, "2": 3}, **IDS},
        },
        {"endOffset": {"logOffset": 3}, "latestOffset": None},
    ]
}


def test_the_lag_is_what_is_there_and_not_read() -> None:
    expected = {
        TopicPartition("orders", 0): 2,
        TopicPartition("orders", 1): 0,
        TopicPartition("orders", 2): 3,
    }

    assert lag(PROGRESS) == expected
    assert lag(json.dumps(PROGRESS)) == expected
    assert lag(SimpleNamespace(json=json.dumps(PROGRESS))) == expected


def test_offsets_that_are_texts_are_understood() -> None:
    (source, _) = PROGRESS["sources"]
    as_text = {"sources": [{name: json.dumps(value) for name, value in source.items()}]}

    assert sum(lag(as_text).values()) == 5
