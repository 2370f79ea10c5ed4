"""Pools seen from outside. Everything reads with plain commands, and nothing here runs in a process that makes ids.

pool_monitor.py is where to begin: PoolMonitor reads a pool, also again and again. lease.py and pool.py have what it
returns, conditions.py the verdict about it, history.py what happened and who made an id. For programs: metrics.py. For
a person with a problem: doctor.py, with checks.py.
"""
