"""A Django project whose database is DATABASE_URL. Each argument is a command, such as "migrate:shop".

`fill:NAME` makes rows by the models, as an application does.
"""

import os
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import django
from django.conf import settings

sys.path.insert(0, str(Path(__file__).parent))
url = urlsplit(os.environ["DATABASE_URL"])
settings.configure(
    SECRET_KEY="x",
    USE_TZ=True,
    PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
    TIME_ZONE=os.environ.get("ZONE", "UTC"),
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    INSTALLED_APPS=[
        *("django.contrib.contenttypes", "django.contrib.auth", "django.contrib.sessions", "django.contrib.messages"),
        *("django.contrib.admin", "shop"),
    ],
    SILENCED_SYSTEM_CHECKS=[f"admin.E4{number:02}" for number in range(20)],
    MIGRATION_MODULES={"shop": "shop_migrations"},
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": url.path.strip("/"),
            "USER": "postgres",
            "HOST": parse_qs(url.query)["host"][0],
            "OPTIONS": {"options": "-c datestyle=ISO"},
        }
    },
)
django.setup()


def fill(name: str) -> None:
    from django.contrib.admin.models import ADDITION, DELETION, LogEntry
    from django.contrib.auth.models import Group, Permission, User
    from django.contrib.contenttypes.models import ContentType
    from shop.models import Book, Comment, Publisher, Shelf, Tag, Tagged

    users = [User.objects.create_user(f"{name} user {at}") for at in range(5)]
    group = Group.objects.create(name=f"{name} editors")
    group.permissions.set(Permission.objects.filter(codename__in=["add_book", "view_tag", "delete_user"]))
    users[0].groups.add(group)
    users[1].user_permissions.add(Permission.objects.get(codename="change_comment"))
    tags = [Tag.objects.create(name=f"{name} tag {at}") for at in range(3)]
    publisher = Publisher.objects.create(name=f"{name} press")
    books = [
        Book.objects.create(title=f"{name} book {at}", publisher=publisher, editor=users[at % 5]) for at in range(12)
    ]
    for at, book in enumerate(books):
        Tagged.objects.create(tag=tags[at % 3], target=book)
        Comment.objects.create(about=[book, users[at % 5], publisher][at % 3], text=f"{name} comment {at}")
        Shelf.objects.create(book=book, place=f"{name} place {at}").readers.set(users[: at % 3])
    of_book = ContentType.objects.get_for_model(Book)
    for book in books[:6]:
        LogEntry.objects.create(
            user=users[0], content_type=of_book, object_id=book.pk, object_repr=book.title, action_flag=ADDITION
        )
    gone = Book.objects.create(title="gone", publisher=publisher, editor=users[0])
    LogEntry.objects.create(
        user=users[2], content_type=of_book, object_id=gone.pk, object_repr=f"{name} gone", action_flag=DELETION
    )
    LogEntry.objects.create(
        user=users[1],
        content_type=ContentType.objects.get_for_model(Permission),
        object_id=Permission.objects.get(codename="add_tag").pk,
        object_repr=f"{name} permission",
        action_flag=ADDITION,
    )
    gone.delete()


for argument in sys.argv[1:]:
    command, *more = argument.split(":")
    if command == "fill":
        fill(*more)
    else:
        from django.core.management import call_command

        call_command(command, *more, verbosity=0)
