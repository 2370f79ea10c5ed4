"""The demo: a fleet on a private Redis; one process is killed, one clock set back, every id checked.

show.py      starts the server and the fleet, shows the scenario, checks the ids, removes everything
scenario.py  the steps, in order
fleet.py     the processes
worker.py    one process, run on its own
view.py      the text on the screen
check.py     whether any id was made twice
"""
