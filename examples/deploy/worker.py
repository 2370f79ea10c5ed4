# Type:     python examples/deploy/worker.py
# You see:  an id each second, until SIGTERM ends it; its worker id was released then.
#           Needs a Redis (SNOWREDIS_URL).

import time

import snowredis


def main():
    # docker stop, Kubernetes, systemd and timeout send SIGTERM
    snowredis.close_on_sigterm()
    while True:
        print(snowredis.next_id(), flush=True)
        time.sleep(1)


if __name__ == "__main__":
    main()
