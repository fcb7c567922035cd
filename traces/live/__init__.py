"""Recording while it happens: the worker process, what it says, and sessions kept as Parquet traces."""
