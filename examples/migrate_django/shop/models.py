"""The models as they are after the migration."""

from django.db import models

from snowredis.integrations.django import SnowflakeField


class Order(models.Model):
    id = SnowflakeField(primary_key=True)  # was: models.AutoField(primary_key=True)
    name = models.CharField(max_length=40)


class Line(models.Model):
    id = models.BigAutoField(primary_key=True)
    order = models.ForeignKey(Order, models.CASCADE)
    text = models.CharField(max_length=40)
