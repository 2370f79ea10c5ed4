"""Print the trace of one schedule that is interrupted between bytecodes: interruptions_of_a_seed SEED."""

import sys

from tests.lab.simulation.schedule import Simulation

print(*Simulation(int(sys.argv[1]), bytecodes=True, traced=True).run().trace, sep="\n")
