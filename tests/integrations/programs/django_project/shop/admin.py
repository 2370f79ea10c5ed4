"""Pages of the admin for some of the tables."""

from django.contrib import admin

from shop import models


class Lines(admin.TabularInline):
    model = models.Line


@admin.register(models.Order)
class Orders(admin.ModelAdmin):
    inlines = (Lines,)
    readonly_fields = ("id", "number")
    list_display = ("id", "name")
    fields = ("id", "number", "name")


admin.site.register([models.Tag, models.Reference])
