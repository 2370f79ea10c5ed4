"""Tables whose ids are Snowflakes: as primary keys, other columns, foreign keys and in link tables."""

from django.db import models

from snowredis.integrations.django import GeneratedCharField, GeneratedUUIDField, SnowflakeField


class Stamped(models.Model):
    id = SnowflakeField(primary_key=True)

    class Meta:
        abstract = True


class Order(Stamped):
    name = models.CharField(max_length=50, default="tea", unique=False)
    number = SnowflakeField(unique=True)
    tags = models.ManyToManyField("Tag")


class Line(models.Model):
    order = models.ForeignKey(Order, models.CASCADE)


class Tag(models.Model):
    id = SnowflakeField(primary_key=True, lazy=False)
    parent = models.ForeignKey("self", models.CASCADE, null=True)


class Express(Order):
    fast = models.BooleanField(default=True)


class Detail(models.Model):
    order = models.OneToOneField(Order, models.CASCADE, primary_key=True)


class Reference(models.Model):
    foreign = SnowflakeField(null=True, default=None)
    typed = SnowflakeField("typed in", editable=True)


class Invoice(models.Model):
    id = SnowflakeField(primary_key=True, kind="snowflake:?pool=invoices")


class Ticket(models.Model):
    id = GeneratedUUIDField(primary_key=True)
    public = GeneratedCharField(unique=True)
    token = GeneratedUUIDField(kind="uuid4", editable=True)
    mongo = GeneratedCharField(kind="objectid", max_length=30)
    number = SnowflakeField(kind="snowflake:?pool=tickets")


class Seat(models.Model):
    ticket = models.ForeignKey(Ticket, models.CASCADE)
