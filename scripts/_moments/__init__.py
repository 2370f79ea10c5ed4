"""Bad moments of a pool, played with real servers and processes: see stage.py and moments.py."""
