"""Ways in which forked children die, for scripts/deaths.py."""
