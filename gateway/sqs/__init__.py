"""The SQS front: the HTTP API of Amazon SQS over tidelog queues."""
