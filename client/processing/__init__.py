"""Consume, transform and produce, exactly once (Kafka Streams: `exactly_once_v2`)."""
