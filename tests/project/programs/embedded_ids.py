"""Make ids with a server that starts by itself, and print how many: embedded_ids DIRECTORY."""

import sys

import snowredis

with snowredis.connect(f"embedded://{sys.argv[1]}", pool="wheel") as ids:
    made = [ids.next_id(), *ids.next_ids(1000), ids.next_id()]
assert made == sorted(set(made)), made
print(len(made))
snowredis.embedded.stop(sys.argv[1])
