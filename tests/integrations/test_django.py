"""Django: a real project, made by django-admin, on SQLite.

Each program is a process of its own, so that no settings leak into other tests.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from snowredis.cli import main
from tests.support.programs import ROOT
from tests.support.servers import RedisServer

pytest.importorskip("django")

MODELS = """
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
    id = SnowflakeField(primary_key=True, generator="shop.ids.next_invoice")

class Ticket(models.Model):
    id = GeneratedUUIDField(primary_key=True)
    public = GeneratedCharField(unique=True)
    token = GeneratedUUIDField(kind="uuid4", editable=True)
    mongo = GeneratedCharField(kind="objectid", max_length=30)
    number = SnowflakeField(kind="snowflake:?pool=tickets")

class Seat(models.Model):
    ticket = models.ForeignKey(Ticket, models.CASCADE)
"""
IDS = """
import itertools
count = itertools.count(1000)
def next_invoice():
    return next(count)
"""
ADMIN = """
from django.contrib import admin
from shop import models

class Lines(admin.TabularInline):
    model = models.Line

@admin.register(models.Order)
class Orders(admin.ModelAdmin):
    inlines = [Lines]
    readonly_fields = ["id", "number"]
    list_display = ["id", "name"]
    fields = ["id", "number", "name"]

admin.site.register([models.Tag, models.Reference])
"""
URLS = """
from django.contrib import admin
from django.http import JsonResponse
from django.urls import path, register_converter
from snowredis.integrations.django import SnowflakeConverter

register_converter(SnowflakeConverter, "snowflake")
urlpatterns = [
    path("admin/", admin.site.urls),
    path("orders/<snowflake:pk>/", lambda request, pk: JsonResponse({"id": str(pk)}), name="order"),
]
"""
SETTINGS = """
import os
from snowredis.testing import memory_pool
INSTALLED_APPS += ["snowredis.integrations.django", "rest_framework", "shop"]
ALLOWED_HOSTS = ["*"]
DATABASES["default"]["OPTIONS"] = {"timeout": 60}
SNOWREDIS = {"url": memory_pool(), "Pool": "shop"}
exec(os.environ.get("MORE_SETTINGS", ""))
"""


class Project:
    """Directory with manage.py, in which programs import this tree's snowredis."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def run(self, *command: str, fails: bool = False, **environment: str) -> str:
        done = subprocess.run(
            [sys.executable, *command],
            cwd=self.directory,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "DJANGO_SETTINGS_MODULE": "web.settings",
                **environment,
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=80,
        )
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stdout + done.stderr

    def manage(self, *command: str, settings: str = "", fails: bool = False) -> str:
        return self.run("manage.py", *command, fails=fails, MORE_SETTINGS=settings)

    def program(self, source: str, *, settings: str = "", setup: str = "django.setup()") -> str:
        start = f"import django; {setup}\n" if setup else ""
        return self.run("-c", start + textwrap.dedent(source), MORE_SETTINGS=settings)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Project that is created and migrated once."""
    project = Project(tmp_path_factory.mktemp("project"))
    project.run("-m", "django", "startproject", "web", ".", DJANGO_SETTINGS_MODULE="")
    project.run("manage.py", "startapp", "shop")
    shop, web = project.directory / "shop", project.directory / "web"
    for path, text in {
        shop / "models.py": MODELS,
        shop / "ids.py": IDS,
        shop / "admin.py": ADMIN,
        web / "urls.py": URLS,
    }.items():
        path.write_text(text)
    with (web / "settings.py").open("a") as settings:
        settings.write(SETTINGS)
    project.manage("makemigrations", "shop")
    project.manage("migrate", "-v", "0")
    return project.directory


@pytest.fixture
def project(template: Path, tmp_path: Path) -> Project:
    shutil.copytree(template, tmp_path / "p")
    return Project(tmp_path / "p")


@pytest.fixture
def on_redis(server: RedisServer, capsys: pytest.CaptureFixture[str]) -> Callable[[str], str]:
    """Settings for a pool on the private server, which is known to be new."""

    def make(pool: str) -> str:
        assert main(["pool", "create", pool, "--url", server.url]) == 0
        capsys.readouterr()
        return f"SNOWREDIS = {{'url': {server.url!r}, 'pool': {pool!r}}}"

    return make


# --- the whole ----------------------------------------------------------------------------------------


def test_four_processes_fill_one_table_and_no_id_is_repeated(
    project: Project, on_redis: Callable[[str], str]
) -> None:
    settings = on_redis("four")
    project.program(
        """
        import os
        from shop.models import Order
        children = []
        for _ in range(4):
            pid = os.fork()
            if not pid:
                for _ in range(4):
                    Order.objects.bulk_create([Order() for _ in range(500)])
                os._exit(0)
            children.append(pid)
        assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 4
        rows = Order.objects.values_list("id", "number")
        assert len(rows) == 8_000, len(rows)
        everything = [an_id for row in rows for an_id in row]
        assert len(set(everything)) == 16_000
        """,
        settings=settings,
    )


def test_migrations_are_complete_and_stable(project: Project) -> None:
    assert "No changes detected" in project.manage("makemigrations", "--check", "--dry-run")
    migration = (project.directory / "shop" / "migrations" / "0001_initial.py").read_text()
    assert "snowredis.integrations.django.SnowflakeField(primary_key=True, serialize=False)" in migration
    assert "snowredis.integrations.django.SnowflakeField(unique=True)" in migration
    assert "SnowflakeField(lazy=False, primary_key=True, serialize=False)" in migration
    assert "SnowflakeField(editable=True, verbose_name='typed in')" in migration
    assert "SnowflakeField(default=None, null=True)" in migration
    assert "generator='shop.ids.next_invoice'" in migration
    assert "IdMaker" not in migration
    assert "lambda" not in migration
    project.program(
        """
        import copy, pickle
        from shop.models import Invoice, Order, Reference, Tag
        from snowredis.integrations.django import SnowflakeField
        class Own(SnowflakeField):
            pass
        assert Own().deconstruct()[1] == "__main__.Own"
        for model in (Invoice, Order, Reference):
            for field in model._meta.local_fields:
                assert field.clone().deconstruct()[1:] == copy.deepcopy(field).deconstruct()[1:]
        tag = pickle.loads(pickle.dumps(Tag()))
        assert tag.pk > 0 and tag._meta.pk is Tag._meta.pk
        """
    )


def test_a_column_added_to_a_table_with_rows_is_not_filled_with_one_id_for_all(project: Project) -> None:
    project.program("from shop.models import Tag; Tag.objects.bulk_create([Tag(), Tag()])")
    models = project.directory / "shop" / "models.py"
    models.write_text(models.read_text().replace("null=True)", "null=True); code = SnowflakeField()", 1))
    said = project.manage("makemigrations", "--noinput", fails=True)
    assert "NOT NULL constraint" in said or "code" in said
    models.write_text(
        models.read_text().replace("code = SnowflakeField()", "code = SnowflakeField(null=True)")
    )
    project.manage("makemigrations", "shop")
    project.manage("migrate", "-v", "0")
    project.program(
        """
        from shop.models import Tag
        assert [tag.code for tag in Tag.objects.all()] == [None, None]
        assert Tag.objects.create().code > 0
        """
    )
    assert "No changes detected" in project.manage("makemigrations", "--check", "--dry-run")


def test_starting_django_claims_nothing_and_does_not_even_load_redis(project: Project) -> None:
    project.program(
        """
        import sys, threading
        from shop.models import Order
        from snowredis import process_generator
        assert not process_generator._sources[-1].generators and threading.active_count() == 1
        assert "redis" not in sys.modules
        assert process_generator.effective_settings() == {"url": "redis://127.0.0.1:1", "pool": "x"}
        """,
        settings="SNOWREDIS = {'URL': 'redis://127.0.0.1:1', 'Pool': 'x'}",
    )


# --- models -------------------------------------------------------------------------------------------


def test_objects_forms_and_pages_of_the_admin_need_no_redis_until_a_row_is_inserted(project: Project) -> None:
    project.program(
        """
        from django.contrib.auth.models import User
        from django.db import connection
        from django.forms import inlineformset_factory, modelform_factory
        from django.test import Client
        from django.test.utils import CaptureQueriesContext, override_settings
        from shop.models import Express, Invoice, Line, Order
        import snowredis

        order = Order(name="tea")
        order.full_clean()
        assert order.pk is None and order.number is None and Express().pk is None
        form = modelform_factory(Order, fields=["name"])({"name": "milk"})
        assert form.is_valid() and form.save(commit=False).pk is None
        lines = inlineformset_factory(Order, Line, fields=["order"])(instance=Order())
        assert "TOTAL_FORMS" in str(lines)
        User.objects.create_superuser("root", password="root")
        client = Client()
        client.login(username="root", password="root")
        assert client.get("/admin/shop/order/add/").status_code == 200
        try:
            order.save()
        except snowredis.StoreUnavailable:
            assert order.pk is None
        else:
            raise AssertionError("no Redis, and yet an id")

        with override_settings(SNOWREDIS={"testing": True, "pool": "shop", "min_replicas": 1}):
            with CaptureQueriesContext(connection) as queries:
                order.save()
            assert [query["sql"].split()[0] for query in queries] == ["INSERT"], queries.captured_queries
            assert 0 < order.pk < order.number and Order.objects.get(pk=order.pk) == order
            order.save()
            assert Order.objects.count() == 1
            express = Express.objects.create()
            assert express.pk == express.order_ptr_id > order.number
            many = Order.objects.bulk_create([Order() for _ in range(100)])
            assert [each.pk for each in many] == sorted({each.pk for each in many})
            first = snowredis.next_id()
        # the same memory, so no id is repeated in the next test
        with override_settings(SNOWREDIS={"testing": True, "pool": "shop"}):
            assert snowredis.next_id() > first
        """,
        settings="SNOWREDIS = {'url': 'redis://127.0.0.1:1', 'Pool': 'shop'}",
    )


def test_it_is_the_primary_key_of_models_and_link_tables_that_declare_none(project: Project) -> None:
    settings = "SNOWREDIS = {'TESTING': True, 'pool': 'auto'}"
    field = "snowredis.integrations.django.SnowflakeAutoField"
    # startapp names a field of its own for the app
    apps = project.directory / "shop" / "apps.py"
    text = re.sub(r"(?m)^ +default_auto_field = .*$", "", apps.read_text())
    apps.write_text(f"{text}    default_auto_field = {field!r}\n")
    project.program(
        """
        from django.db import connection, models
        from django.db.migrations.writer import MigrationWriter
        from django.db.models import AutoField
        from django.test.utils import CaptureQueriesContext
        from snowredis.integrations.django import SnowflakeAutoField
        from shop.models import Tag
        class Page(models.Model):
            tags = models.ManyToManyField(Tag)
            above = models.ForeignKey("self", models.CASCADE, null=True)
            class Meta:
                app_label = "shop"
        pk = Page._meta.pk
        assert isinstance(pk, SnowflakeAutoField) and isinstance(pk, AutoField)
        assert not Page.check() and pk.db_type(connection) == "bigint"
        assert Page._meta.get_field("above").db_type(connection) == "bigint"
        assert MigrationWriter.serialize(pk)[0] == (
            "snowredis.integrations.django.SnowflakeAutoField(auto_created=True, primary_key=True, "
            "serialize=False, verbose_name='ID')"
        ), MigrationWriter.serialize(pk)
        with connection.schema_editor() as editor:
            editor.create_model(Page)
        page = Page()
        assert page.pk is None
        with CaptureQueriesContext(connection) as queries:
            page.save()
        assert [query["sql"].split()[0] for query in queries] == ["INSERT"]
        assert page.pk > 2**40 and Page.objects.get().pk == page.pk
        pages = Page.objects.bulk_create([Page(above=page), Page(pk=7)])
        assert pages[0].pk > page.pk and pages[1].pk == 7
        page.tags.set([Tag.objects.create(), Tag.objects.create()])
        links = Page.tags.through.objects.values_list("pk", flat=True)
        assert len(links) == 2 and min(links) > page.pk
        """,
        settings=settings,
    )
    said = project.manage("makemigrations", "--dry-run", "-v", "3", settings=settings)
    assert f"field={field}(auto_created=True, primary_key=True" in said
    # what a migration makes of link tables follows the setting, and not the app
    narrow = "DEFAULT_AUTO_FIELD = 'django.db.models.AutoField'"
    checked = project.manage("check", "--fail-level", "WARNING", settings=narrow, fails=True)
    assert "(snowredis.W006) DEFAULT_AUTO_FIELD has 32 bits" in checked
    assert "shop.Order_tags" in checked
    checked = project.manage("check", settings=f"DEFAULT_AUTO_FIELD = {field!r}", fails=True)
    assert "(snowredis.E012) DEFAULT_AUTO_FIELD is SnowflakeAutoField, but not for auth.Group_perm" in checked
    assert "shop.Order_tags" not in checked


def test_a_primary_key_that_is_not_lazy_is_there_before_the_row_and_takes_one_insert(
    project: Project,
) -> None:
    project.program(
        """
        from django.db import connection
        from django.test.utils import CaptureQueriesContext
        from shop.models import Invoice, Order, Line, Tag, Express

        order = Tag()
        assert 0 < order.pk < 2**63 and order._state.adding
        with CaptureQueriesContext(connection, ) as queries:
            order.save()
        assert [query["sql"].split()[0] for query in queries] == ["INSERT"], queries.captured_queries
        order.save()
        assert Tag.objects.count() == 1

        made = Tag.objects.create()
        assert made.pk > order.pk and Tag.objects.get(pk=made.pk) == made
        assert Tag.objects.get_or_create(parent=made)[1] and not Tag.objects.get_or_create(parent=made)[1]
        assert Tag.objects.update_or_create(pk=made.pk, defaults={"parent": order}) == (made, False)
        assert Tag.objects.create(pk=7).pk == 7

        # the way to copy a row
        copied, made.pk, made._state.adding = made.pk, None, True
        made.save()
        assert made.pk != copied and Tag.objects.filter(pk=copied).exists()

        many = Tag.objects.bulk_create([Tag(parent=made) for _ in range(3000)])
        pks = [tag.pk for tag in many]
        assert pks == sorted(set(pks)) and Tag.objects.filter(pk__in=pks[:100]).count() == 100
        no_pks = Tag.objects.bulk_create([Tag(pk=None), Tag(pk=None)])
        assert all(tag.pk for tag in no_pks) and no_pks[0].pk != no_pks[1].pk
        Tag.objects.bulk_create([Tag(pk=pks[0])], ignore_conflicts=True)

        assert [Invoice.objects.create().pk, Invoice.objects.create().pk] == [1000, 1001]
        """
    )


def test_a_plain_field_is_filled_when_its_row_is_inserted(project: Project) -> None:
    project.program(
        """
        from shop.models import Order, Reference
        order = Order()
        assert order.number is None
        order.full_clean()
        order.save()
        number = order.number
        assert 0 < number < 2**63 and number != order.pk
        order.save()
        order.refresh_from_db()
        assert order.number == number
        several = Order.objects.bulk_create([Order(), Order(number=5)])
        assert several[0].number > 0 and several[1].number == 5
        assert Order.objects.get(pk=several[0].pk).number == several[0].number
        assert Order.objects.update_or_create(name="new")[0].number > 0
        reference = Reference.objects.create()
        assert reference.foreign is None and reference.typed > 0
        """
    )


def test_keys_to_it_and_children_of_it_have_its_column_type_and_no_default(project: Project) -> None:
    project.program(
        """
        from django.db import connection
        from shop.models import Order, Line, Tag, Express
        assert Line().order_id is None and Tag().parent_id is None
        column = Line._meta.get_field("order")
        assert column.db_type(connection) == Order._meta.pk.db_type(connection) == "bigint"
        order = Order.objects.create()
        Line.objects.create(order=order)
        tag = Tag.objects.create()
        order.tags.add(tag)
        assert Order.objects.filter(tags=tag, line__order_id=order.pk).get() == order

        express = Express.objects.create(name="quick")
        assert express.pk == express.id == express.order_ptr_id and express.number > 0
        express.name = "quicker"
        express.save()
        assert Order.objects.get(pk=express.pk).name == "quicker" and Express.objects.count() == 1
        Express().save()
        assert Express.objects.count() == 2
        """
    )


def test_a_composite_primary_key_may_hold_one(project: Project) -> None:
    import django

    if django.VERSION < (5, 2):
        pytest.skip("Django has composite primary keys since 5.2")
    project.program(
        """
        from django.db import connection, models
        from snowredis.integrations.django import SnowflakeField
        class Pair(models.Model):
            pk = models.CompositePrimaryKey("tenant", "number")
            tenant = models.IntegerField()
            number = SnowflakeField()
            class Meta:
                app_label = "shop"
        with connection.schema_editor() as editor:
            editor.create_model(Pair)
        one = Pair(tenant=1)
        one.save()
        Pair.objects.bulk_create([Pair(tenant=1), Pair(tenant=2)])
        assert len({pair.number for pair in Pair.objects.all()} - {None}) == 3
        """
    )


@pytest.mark.parametrize("form", ["json", "xml", "jsonl"])
def test_dumpdata_and_loaddata_keep_every_digit(project: Project, form: str) -> None:
    project.program(
        f"""
        from django.core.management import call_command
        from shop.models import Order, Line, Tag
        orders = Order.objects.bulk_create([Order() for _ in range(20)] + [Order(pk=2**63 - 1, number=2**63 - 1)])
        for order in orders:
            Line.objects.create(order=order)
            order.tags.add(Tag.objects.create())
        def rows():
            tables = [sorted(model.objects.values_list()) for model in (Order, Line, Tag)]
            return [*tables, sorted(Order.tags.through.objects.values_list("order_id", "tag_id"))]
        before = rows()
        call_command("dumpdata", "shop", format="{form}", output="dump.{form}")
        Order.objects.all().delete(), Tag.objects.all().delete()
        call_command("loaddata", "dump.{form}", verbosity=0)
        for now, then in zip(rows(), before):
            assert now == then, (now, then)
        """
    )


def test_the_model_refuses_what_is_no_id(project: Project) -> None:
    project.program(
        """
        from django.core.exceptions import ValidationError
        from shop.models import Order
        for good in (1, 2**63 - 1, "249734652741287936"):
            Order(pk=good).full_clean()
        for bad in (0, -1, 2**63, 2.5e17, True, "12a", "0x1"):
            try:
                Order(pk=bad).full_clean()
            except ValidationError as error:
                assert "id" in error.message_dict, error
            else:
                raise AssertionError(bad)
        """
    )


# --- forms, admin, URLs, REST ---------------------------------------------------------------------------


def test_forms_show_and_take_ids_as_text_digit_by_digit(project: Project) -> None:
    project.program(
        """
        from django import forms
        from shop.models import Line, Order, Reference
        class Form(forms.ModelForm):
            class Meta:
                model = Reference
                fields = "__all__"
        shown = str(Form(instance=Reference(foreign=2**63 - 1))["foreign"])
        assert 'type="text"' in shown and 'value="9223372036854775807"' in shown, shown
        assert "value=" not in str(Form()["typed"])
        reference = Form({"foreign": " 249734652741287937 ", "typed": "9007199254740993"}).save()
        reference.refresh_from_db()
        assert (reference.foreign, reference.typed) == (249734652741287937, 9007199254740993)
        assert Form({"foreign": "1", "typed": ""}).save().typed > 0
        for bad in ("0", "-1", str(2**63), "1.0", "1e3", "1_000", "\\uff11", "x", "9" * 5000):
            form = Form({"foreign": bad, "typed": "1"})
            assert not form.is_valid() and "foreign" in form.errors, bad
        order = Order.objects.create()
        chosen = forms.modelform_factory(Line, fields=["order"])
        assert f'value="{order.pk}"' in str(chosen()) and chosen({"order": str(order.pk)}).save().order == order
        """
    )


def test_the_admin_adds_changes_and_deletes(project: Project) -> None:
    project.program(
        """
        from django.contrib.auth.models import User
        from django.test import Client
        from shop.models import Line, Order, Reference
        User.objects.create_superuser("root", password="root")
        client = Client(raise_request_exception=True)
        assert client.login(username="root", password="root")
        def post(path, **data):
            answer = client.post(path, data)
            assert answer.status_code == 302, answer.content.decode()
        def lines(**more):
            counts = {"TOTAL_FORMS": "1", "INITIAL_FORMS": "0", "MIN_NUM_FORMS": "0", "MAX_NUM_FORMS": "9"}
            return {f"line_set-{name}": value for name, value in {**counts, **more}.items()}

        assert client.get("/admin/shop/order/add/").status_code == 200
        post("/admin/shop/order/add/", name="first", **lines())
        order = Order.objects.get()
        page = client.get(f"/admin/shop/order/{order.pk}/change/").content.decode()
        assert str(order.pk) in page and str(order.number) in page
        post(f"/admin/shop/order/{order.pk}/change/", name="second", **lines())
        assert Order.objects.get().name == "second" and Order.objects.get().pk == order.pk
        assert str(order.pk) in client.get("/admin/shop/order/").content.decode()
        post("/admin/shop/reference/add/", foreign=str(order.pk), typed="")
        assert Reference.objects.get().foreign == order.pk
        post(f"/admin/shop/order/{order.pk}/delete/", post="yes")
        assert not Order.objects.exists()
        """
    )


def test_the_path_converter_takes_ids_only(project: Project) -> None:
    project.program(
        """
        from django.test import Client
        from django.urls import reverse
        client = Client()
        assert reverse("order", args=[2**63 - 1]) == "/orders/9223372036854775807/"
        assert client.get("/orders/9223372036854775807/").json() == {"id": "9223372036854775807"}
        for bad in ("0", "-1", "007", str(2**63), "1" * 30, "1.0", "\\uff11"):
            assert client.get(f"/orders/{bad}/").status_code == 404, bad
        """
    )


def test_rest_framework_carries_ids_and_keys_as_strings(project: Project) -> None:
    pytest.importorskip("rest_framework")
    project.program(
        """
        import json
        from rest_framework import serializers
        from rest_framework.renderers import JSONRenderer
        from shop.models import Detail, Express, Line, Order, Reference, Tag
        from snowredis.integrations.django import SnowflakeField
        from snowredis.integrations.django.rest import SnowflakeModelMixin, SnowflakeSerializerField

        def serializer(of, *bases, nested=0):
            class Made(*bases, serializers.ModelSerializer):
                class Meta:
                    model, fields, depth = of, "__all__", nested
            return Made
        def shown(instance, *bases, nested=0):
            return json.loads(JSONRenderer().render(serializer(type(instance), *bases, nested=nested)(instance).data))

        tag, order, express = Tag.objects.create(), Order.objects.create(), Express.objects.create()
        order.tags.add(tag)
        line = Line.objects.create(order=order)
        child = Tag.objects.create(parent=tag)
        text = shown(order, SnowflakeModelMixin)
        assert (text["id"], text["number"], text["tags"]) == (str(order.pk), str(order.number), [str(tag.pk)])
        assert shown(line, SnowflakeModelMixin)["order"] == str(order.pk)
        assert shown(child, SnowflakeModelMixin)["parent"] == str(tag.pk)
        assert shown(tag, SnowflakeModelMixin)["parent"] is None
        assert shown(express, SnowflakeModelMixin)["id"] == str(express.pk), shown(express, SnowflakeModelMixin)
        nested = shown(line, SnowflakeModelMixin, nested=2)["order"]
        assert (nested["id"], nested["number"]) == (str(order.pk), str(order.number)), nested
        assert nested["tags"][0]["id"] == str(tag.pk), nested
        assert shown(child, SnowflakeModelMixin, nested=1)["parent"]["id"] == str(tag.pk)
        detail = Detail.objects.create(order=order)
        assert shown(detail, SnowflakeModelMixin) == {"order": str(order.pk)}

        lines = serializer(Line, SnowflakeModelMixin)
        for good in (str(order.pk), order.pk):
            taken = lines(data={"order": good})
            assert taken.is_valid(raise_exception=True) and taken.save().order == order
        for bad in (float(order.pk), "12", "x", True, None, [], "9" * 2000, "1.0", 2**70):
            assert not lines(data={"order": bad}).is_valid(), bad
        references = serializer(Reference, SnowflakeModelMixin)
        taken = references(data={"foreign": "9223372036854775807"})
        assert taken.is_valid(raise_exception=True) and taken.save().foreign == 2**63 - 1
        for bad in (0, -1, "0", 2**63, 1.5, True):
            taken = references(data={"foreign": bad})
            assert not taken.is_valid() and "foreign" in taken.errors, bad

        # the one line for every ModelSerializer
        serializers.ModelSerializer.serializer_field_mapping[SnowflakeField] = SnowflakeSerializerField
        assert shown(order)["id"] == str(order.pk)
        """
    )


# --- settings and checks --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            "SNOWREDIS = {'pol': 'x'}",
            "unknown setting 'pol'. Did you mean 'pool'? The settings are: url, pool, layout",
        ),
        ("SNOWREDIS = {'url': 'redis://h', 'URL': 'redis://i'}", "SNOWREDIS has a name twice: url, URL"),
        ("SNOWREDIS = 'redis://h'", "SNOWREDIS is a str. Write a dict"),
        ("SNOWREDIS = None", "SNOWREDIS is a NoneType. Write a dict"),
        ("SNOWREDIS = {1: 2}", "unknown setting '1'"),
        ("SNOWREDIS = {'testing': 'yes'}", "SNOWREDIS['testing'] must be True or False, not 'yes'"),
    ],
)
def test_names_that_there_are_not_stop_every_process_at_its_start(
    project: Project, settings: str, says: str
) -> None:
    said = project.manage("check", settings=settings, fails=True)
    assert "ImproperlyConfigured" in said
    assert says in said


def test_checks_say_what_cannot_work_and_what_repeats_ids(project: Project) -> None:
    """In one process: (settings, ids of the messages, with --deploy)."""
    project.program(
        """
        import logging
        from django.core import checks
        from django.test import override_settings
        from snowredis import Layout
        from snowredis.integrations.django import checks as ours
        from snowredis.testing import memory_pool
        import time

        def found(deploy=False, debug=True, caches=None, **given):
            with override_settings(DEBUG=debug, SNOWREDIS=given, CACHES=caches or {}):
                messages = ours.check_settings()
                messages += ours.check_deployment() if deploy else []
            assert all(message.hint for message in messages)
            return [message.id.removeprefix("snowredis.") for message in messages]

        redis = "redis://db.example:6379/0"
        assert found(url=redis, debug=False, deploy=True) == []
        assert found(url=["redis://a", "redis://b"], debug=False, deploy=True) == []
        assert found() == []
        for bad in (
            {"layout": "no"}, {"layout": "60/0/2/10/10"}, {"ttl": 0.01}, {"ttl": "30"}, {"pool": "a b"},
            {"url": "nonsense"}, {"url": None}, {"url": 5}, {"url": []}, {"url": [redis, None]},
            {"url": [redis, redis]}, {"clock_policy": "x"},
            {"label": 5}, {"datacenter": 3}, {"layout": "uid-generator"}, {"url": "redis://h:x"},
            {"url": memory_pool(), "min_replicas": 1}, {"url": "embedded://", "min_replicas": 1},
        ):
            assert found(**bad, deploy=True, debug=True)[:1] == ["E001"], bad

        # ends in a month
        month_ms = 30 * 86400_000
        ending = Layout(timestamp_bits=32, epoch_ms=int(time.time() * 1000) - 2**32 + month_ms)
        assert found(url=redis, layout=ending) == ["W001"]

        pool = memory_pool()
        assert found(url=pool) == [] and found(url="embedded://") == []
        assert found(url=pool, debug=False) == ["E002"]
        assert found(url="embedded://", debug=False) == ["W002"]

        assert found(debug=False) == []
        assert found(debug=False, deploy=True) == ["W003"]
        for local in ("redis://127.0.0.1/0", "unix:///run/redis.sock", "rediss://[::1]:7000/2"):
            assert found(url=local, debug=False, deploy=True) == ["W003"], local

        def cache(where, backend="django.core.cache.backends.redis.RedisCache"):
            return {"default": {"BACKEND": backend, "LOCATION": where}}
        for where in (redis, "redis://:secret@db.example", ["redis://x", redis], f"redis://x,{redis}"):
            assert found(url=redis, deploy=True, caches=cache(where)) == ["W004"], where
        for where in ("redis://db.example:6379/1", "redis://other:6379/0", "127.0.0.1:11211"):
            assert found(url=redis, deploy=True, caches=cache(where)) == [], where
        assert found(url=redis, deploy=True, caches={"default": {"BACKEND": "x.LocMemCache"}}) == []

        # a test runner sets DEBUG to False
        from django.test.utils import setup_test_environment
        setup_test_environment()
        assert found(url=pool, debug=False) == []
        """
    )


def test_check_asks_redis_with_deploy_only(project: Project, on_redis: Callable[[str], str]) -> None:
    settings = on_redis("checked")
    assert "no issues" in project.manage("check", settings=settings)
    assert "no issues" in project.manage(
        "check", settings="SNOWREDIS = {'url': 'redis://127.0.0.1:1'}; DEBUG = False"
    )

    def deployed(more: str, *, fails: bool) -> str:
        return project.manage(
            "check", "--deploy", "--tag", "snowredis", settings=settings + more, fails=fails
        )

    assert "snowredis.E" not in deployed("", fails=False)
    said = deployed("; SNOWREDIS['ttl'] = 60", fails=True)
    assert "snowredis.E003" in said
    assert "pool 'checked' was created with" in said
    assert "snowredis.W005" in deployed("; SNOWREDIS['pool'] = 'absent'", fails=False)
    assert "snowredis.E004" in deployed("; SNOWREDIS['url'] = 'redis://127.0.0.1:1'", fails=True)


def test_variables_are_used_where_settings_say_nothing(project: Project) -> None:
    said = project.run(
        "manage.py", "check", fails=True, MORE_SETTINGS="del SNOWREDIS", SNOWREDIS_LAYOUT="nonsense"
    )
    assert "snowredis.E001" in said
    assert "'nonsense'" in said


def test_override_settings_moves_the_next_id_to_another_pool(project: Project) -> None:
    project.program(
        """
        import snowredis
        from django.test import override_settings
        from shop.models import Tag
        from snowredis.process_generator import process_generator
        from snowredis.testing import memory_pool
        Tag.objects.create()
        with override_settings(SNOWREDIS={"url": memory_pool(), "pool": "other"}):
            Tag.objects.create()
            assert process_generator().pool == "other"
        Tag.objects.create()
        assert process_generator().pool == "shop"
        """
    )


def test_fields_of_other_kinds_fill_themselves(project: Project) -> None:
    migration = (project.directory / "shop" / "migrations" / "0001_initial.py").read_text()
    assert "django.GeneratedUUIDField(primary_key=True, serialize=False)" in migration
    assert "django.GeneratedCharField(max_length=26, unique=True)" in migration
    assert "django.GeneratedUUIDField(editable=True, kind='uuid4')" in migration
    assert "django.GeneratedCharField(kind='objectid', max_length=30)" in migration
    assert "django.SnowflakeField(kind='snowflake:?pool=tickets')" in migration
    project.program(
        """
        import uuid
        from django.forms import modelform_factory
        from shop.models import Order, Seat, Ticket
        assert Ticket().pk is None and Ticket().public is None
        form = modelform_factory(Ticket, fields=["token"])()
        assert form.initial.get("token") is None and "token" in form.fields
        tickets = [Ticket.objects.create(), *Ticket.objects.bulk_create([Ticket(), Ticket()])]
        for ticket in tickets:
            assert ticket.pk.version == 7 and ticket.token.version == 4
            assert (len(ticket.public), len(ticket.mongo)) == (26, 24)
            found = Ticket.objects.get(pk=ticket.pk)
            assert (found.public, found.token, found.number) == (ticket.public, ticket.token, ticket.number)
        assert len({ticket.number for ticket in tickets}) == 3
        seat = Seat.objects.create(ticket=tickets[0])
        assert Seat.objects.get(ticket__public=tickets[0].public).ticket_id == tickets[0].pk
        kept = Ticket.objects.create(pk=uuid.UUID(int=7), public="mine")
        assert (kept.pk.int, kept.public) == (7, "mine")
        assert Order.objects.create().pk > 2**40
        """
    )


def test_the_kind_of_ids_of_a_project_is_a_setting(project: Project) -> None:
    settings = "SNOWREDIS = {'KIND': 'uuid7', 'testing': True}"
    checked = project.manage("check", settings=settings, fails=True)
    assert (
        "shop.Order.id: (snowredis.E011) kind='uuid7': its ids are UUID, and this column holds int" in checked
    )
    assert "E001" not in checked
    assert "shop.Ticket" not in checked
    project.program(
        """
        import snowredis
        assert snowredis.next_id().version == 7
        """,
        settings=settings,
    )
    wrong = project.manage("check", settings="SNOWREDIS = {'kind': 'uuid7', 'pool': 'shop'}", fails=True)
    assert "SNOWREDIS in your settings: unknown setting 'pool' of uuid7 generators" in wrong


def test_a_generator_that_is_none_is_an_error_of_the_check(project: Project) -> None:
    models = project.directory / "shop" / "models.py"
    for bad in ("shop.ids.absent", "nonsense", "shop.ids.count"):
        models.write_text(MODELS.replace("shop.ids.next_invoice", bad))
        said = project.manage("check", fails=True)
        assert "snowredis.E010" in said
        assert bad in said


# --- who is there -----------------------------------------------------------------------------------------


def test_the_command_shows_the_workers_of_the_pool_in_the_settings(
    project: Project, on_redis: Callable[[str], str]
) -> None:
    settings = on_redis("looked-at")
    said = project.program(
        """
        import io, json, sys
        from django.core.management import call_command
        from shop.models import Tag
        Tag.objects.create()
        out = io.StringIO()
        call_command("snowredis_workers", "--json", stdout=out)
        (worker,) = json.loads(out.getvalue())["workers"]
        assert worker["label"] == "django web", worker
        call_command("snowredis_workers")
        """,
        settings=settings,
    )
    assert "pool looked-at at unix://" in said
    assert "django web" in said
    shown: dict[str, Any] = json.loads(
        project.manage("snowredis_workers", "--json", "--all", settings=settings)
    )
    assert shown["pool"]["name"] == "looked-at"
    assert "no worker is alive" in project.manage("snowredis_workers", settings=settings)


def test_the_command_says_what_it_cannot_show(project: Project) -> None:
    assert "A pool in memory has no workers elsewhere" in project.manage("snowredis_workers", fails=True)
    said = project.manage(
        "snowredis_workers", settings="SNOWREDIS = {'url': 'redis://127.0.0.1:1'}", fails=True
    )
    assert "cannot be used" in said


def test_the_label_names_the_project_and_the_command(
    project: Project, on_redis: Callable[[str], str]
) -> None:
    program = (
        "from snowredis.runtime.process import THIS; from shop.models import Tag; Tag.objects.create(); "
        "from django.core.management import call_command; call_command('snowredis_workers', '--json')"
    )
    settings = on_redis("labelled")
    assert '"label": "django web shell"' in project.manage("shell", "-c", program, settings=settings)
    own = f"{settings}; SNOWREDIS['label'] = 'mine'"
    assert '"label": "mine"' in project.manage("shell", "-c", program, settings=own)
