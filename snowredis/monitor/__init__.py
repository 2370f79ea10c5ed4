"""Pools as seen from outside, for the command line, the service and metrics. Reads with plain commands.

worker_pool.py is the entry (snowredis.WorkerPool). The present: snapshot.py, record.py, pool_reader.py and
memory_reader.py. The past: history/, usage_history.py. What to think of it: status.py, forecast.py, health/. Repeated
readings: pool_watch.py. For programs: as_json.py, metrics/.
"""
