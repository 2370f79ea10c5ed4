"""Functions for manage.py shell, which takes one line."""

from django.core.management import call_command

from shop.models import Tag


def show_with_this_process():
    Tag.objects.create()
    call_command("snowredis_workers", "--json")
    call_command("snowredis_workers")
