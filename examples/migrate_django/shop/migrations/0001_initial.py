"""The tables as they were: keys that the database counts."""

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    dependencies = []
    operations = [
        migrations.CreateModel(
            "Order",
            [
                ("id", models.AutoField(primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=40)),
            ],
        ),
        migrations.CreateModel(
            "Line",
            [
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("text", models.CharField(max_length=40)),
                ("order", models.ForeignKey("shop.Order", models.CASCADE)),
            ],
        ),
    ]
