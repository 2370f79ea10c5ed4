"""APScheduler, with jobs in threads and in processes."""

import tempfile
import time
from pathlib import Path

from apscheduler.executors.pool import ProcessPoolExecutor, ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

import snowredis


def make(directory: str, name: str) -> None:
    Path(directory, name).write_text(str(snowredis.next_id()))


if __name__ == "__main__":
    executors = {"default": ThreadPoolExecutor(2), "processes": ProcessPoolExecutor(2)}
    scheduler = BackgroundScheduler(executors=executors)
    with tempfile.TemporaryDirectory() as directory:
        for number in range(10):
            executor = ("default", "processes")[number % 2]
            scheduler.add_job(make, args=[directory, str(number)], executor=executor, misfire_grace_time=None)
        scheduler.start()
        while len(files := [file for file in Path(directory).iterdir() if file.read_text()]) < 10:
            time.sleep(0.01)
        scheduler.shutdown()
        print(*(file.read_text() for file in files), sep="\n")
