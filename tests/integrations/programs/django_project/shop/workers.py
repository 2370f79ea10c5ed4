"""Functions for manage.py shell, which takes one line."""

from django.conf import settings

from shop.models import Tag
from snowredis import WorkerPool


def show_with_this_process():
    Tag.objects.create()
    for lease in WorkerPool(settings.SNOWREDIS["url"], settings.SNOWREDIS["pool"]).workers():
        print(lease.label)
