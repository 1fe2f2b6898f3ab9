# The part of botocore that is used here, in tests; the package has no types of its own.
