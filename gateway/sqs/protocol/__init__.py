"""The two protocols of SQS, AWS JSON 1.0 and AWS Query: pure codecs of one set of messages."""
