"""The parts that run in a process: clock, fork guard, lease keeper, heartbeat, generator."""
