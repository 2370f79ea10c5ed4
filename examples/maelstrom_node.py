#!/usr/bin/env python3
# Type:     maelstrom test -w unique-ids --bin examples/maelstrom_node.py --rate 1000 --nemesis partition
# Needs:    redis-server, or else pip install 'fakeredis[lua]'
# You see:  Maelstrom's verdict on the ids of its nodes, each of which leases a worker id from one Redis. Not run under
#           Maelstrom itself yet; tests/project/test_examples.py speaks its protocol. SNOWREDIS_URL: another Redis.
"""A node of Maelstrom's workload unique-ids: JSON objects on stdin and stdout, a line each.

https://github.com/jepsen-io/maelstrom/blob/main/doc/workloads.md
"""

import json
import os
import sys

import snowredis


def main() -> None:
    ids = snowredis.connect(os.environ.get("SNOWREDIS_URL", "embedded://"), pool="maelstrom")
    node, sent = "", 0
    with ids:
        for line in sys.stdin:
            message = json.loads(line)
            body = message["body"]
            if body["type"] == "init":
                node = body["node_id"]
                # now, so that the first id does not wait for it
                ids.claim()
                reply = {"type": "init_ok"}
            elif body["type"] == "generate":
                try:
                    # as text: in JSON, a number above 2**53 is not exact everywhere
                    reply = {"type": "generate_ok", "id": str(ids.next_id())}
                except snowredis.SnowredisError as error:
                    # 11: temporarily unavailable
                    reply = {"type": "error", "code": 11, "text": str(error)}
            else:
                # 10: not supported
                reply = {"type": "error", "code": 10, "text": f"unknown type {body['type']}"}
            sent += 1
            reply |= {"msg_id": sent, "in_reply_to": body["msg_id"]}
            print(json.dumps({"src": node, "dest": message["src"], "body": reply}), flush=True)


if __name__ == "__main__":
    main()
