"""Models with every kind of reference that Django has."""

from django.conf import settings
from django.contrib.contenttypes.fields import GenericForeignKey
from django.contrib.contenttypes.models import ContentType
from django.db import models


class Party(models.Model):
    name = models.CharField(max_length=40)


class Publisher(Party):
    """Shares its key with its parent."""


class Tag(models.Model):
    name = models.CharField(max_length=40, unique=True)


class Book(models.Model):
    title = models.CharField(max_length=40)
    publisher = models.ForeignKey(Publisher, on_delete=models.PROTECT)
    editor = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    made_at = models.DateTimeField(auto_now_add=True)


class Shelf(models.Model):
    book = models.OneToOneField(Book, primary_key=True, on_delete=models.CASCADE)
    place = models.CharField(max_length=40)
    readers = models.ManyToManyField(settings.AUTH_USER_MODEL)


class Tagged(models.Model):
    tag = models.ForeignKey(Tag, on_delete=models.CASCADE)
    content_type = models.ForeignKey(ContentType, on_delete=models.CASCADE)
    object_id = models.PositiveIntegerField(db_index=True)
    target = GenericForeignKey()


class Comment(models.Model):
    about_type = models.ForeignKey(ContentType, on_delete=models.CASCADE)
    about_id = models.TextField()
    about = GenericForeignKey("about_type", "about_id")
    text = models.CharField(max_length=40)
