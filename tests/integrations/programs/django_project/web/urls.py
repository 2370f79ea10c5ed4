"""The pages of the admin, and one whose path has an id."""

from django.contrib import admin
from django.http import JsonResponse
from django.urls import path, register_converter

from snowredis.integrations.django import SnowflakeConverter

register_converter(SnowflakeConverter, "snowflake")


def order(request, pk):
    return JsonResponse({"id": str(pk)})


urlpatterns = [path("admin/", admin.site.urls), path("orders/<snowflake:pk>/", order, name="order")]
