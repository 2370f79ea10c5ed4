"""Pools seen from outside. Everything reads with plain commands, and nothing here runs in a process that makes ids.

pool_monitor.py is where to begin: PoolMonitor reads a pool, PoolPoller reads it again and again. snapshot.py has what
they return, status.py the verdict about it, deaths.py who died and who has seen it. For one id: whois.py, with
holdings.py. For programs: metrics.py, metric_values.py. For a person with a problem: doctor.py, with checks.py.
"""
