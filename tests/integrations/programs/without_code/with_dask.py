"""dask, with two worker processes."""

from dask.distributed import Client, LocalCluster

import snowredis


def make(_: int) -> int:
    return snowredis.next_id()


if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        print(*client.gather(client.map(make, range(10), pure=False)), sep="\n")
