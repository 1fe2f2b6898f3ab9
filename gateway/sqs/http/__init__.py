"""HTTP/1.1 for the SQS front: httptools parses requests, a task serves each connection."""
