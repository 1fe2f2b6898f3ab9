"""The PySpark data source `tidelog`.

Cores decide (`options`, `read_options`, `offsets`, `columns`, `stream_progress`), shells move
bytes and time (`connection`, `fetcher`, `stream_source`), and `source` is what Spark knows.
Programs import `pyspark_tidelog`, not this package.
"""
