"""The 23 actions of SQS, each a function of a caller and a request."""
