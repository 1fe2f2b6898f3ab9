"""The consumer (Kafka: `KafkaConsumer`)."""
