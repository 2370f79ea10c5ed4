# Type:     python examples/deploy/worker.py
# You see:  an id each second, and after SIGTERM "stopped": the worker id was released.
#           Needs a Redis (SNOWREDIS_URL).

import signal
import sys
import time

import snowredis


def stop(_number, _frame):
    # Python then ends normally and releases the worker id
    sys.exit(0)


def main():
    signal.signal(signal.SIGTERM, stop)
    try:
        while True:
            print(snowredis.next_id(), flush=True)
            time.sleep(1)
    finally:
        print("stopped", flush=True)


if __name__ == "__main__":
    main()
