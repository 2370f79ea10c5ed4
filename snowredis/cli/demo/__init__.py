"""The demo: a fleet on a private Redis. One process is killed, one clock is set back, every id is checked.

show.py      starts the server and the fleet, shows the scenario, checks the ids, removes everything
scenario.py  the steps, in order
fleet.py     the processes
worker.py    one process, run on its own
view.py      the text on the screen
check.py     the check of the ids
"""
