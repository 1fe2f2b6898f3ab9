"""The producer (Kafka: `KafkaProducer`)."""
