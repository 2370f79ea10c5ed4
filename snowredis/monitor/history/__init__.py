"""The past of a pool: its events, who owned which worker id when, and which process made an id.

Data goes one way: events.py -> ownership.py -> verdict.py -> whois.py and duplicate_causes.py.
"""
