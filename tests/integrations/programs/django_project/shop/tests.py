"""Rows of this project, in its forms, pages and JSON: run by `manage.py test`, as the tests of any project are."""

import asyncio
import copy
import json
import pickle
import time
import uuid
from importlib.util import find_spec
from unittest import mock, skipUnless

import pytest
from django import forms
from django.conf import settings
from django.contrib.auth.models import User
from django.core import mail
from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.core.management import call_command
from django.db import connection, models
from django.forms import inlineformset_factory, modelform_factory
from django.http import JsonResponse
from django.template import Context, Template
from django.test import AsyncClient, Client, SimpleTestCase, TestCase, TransactionTestCase, override_settings
from django.urls import path, reverse
from web import urls

import snowredis
from shop.models import Express, Invoice, Line, Order, Reference, Seat, Tag, Ticket
from snowredis.integrations.django import SnowflakeField, checks
from snowredis.integrations.json import SnowflakeEncoder, stringify
from snowredis.integrations.pydantic import JsonSnowflakeId
from snowredis.testing import memory_pool

HIGHEST = 2**63 - 1


class EagerKeys(TestCase):
    """Primary keys that are there before the row."""

    def test_an_object_has_its_key_and_its_first_save_is_one_insert(self):
        tag = Tag()
        assert 0 < tag.pk < 2**63
        assert tag._state.adding
        with self.assertNumQueries(1) as queries:
            tag.save()
        assert queries[0]["sql"].startswith("INSERT")
        tag.save()
        assert Tag.objects.count() == 1

    def test_rows_are_made_found_and_copied(self):
        first = Tag.objects.create()
        made = Tag.objects.create()
        assert made.pk > first.pk
        assert Tag.objects.get(pk=made.pk) == made
        assert Tag.objects.get_or_create(parent=made)[1]
        assert not Tag.objects.get_or_create(parent=made)[1]
        assert Tag.objects.update_or_create(pk=made.pk, defaults={"parent": first}) == (made, False)
        assert Tag.objects.create(pk=7).pk == 7
        # the way to copy a row
        copied, made.pk, made._state.adding = made.pk, None, True
        made.save()
        assert made.pk != copied
        assert Tag.objects.filter(pk=copied).exists()

    def test_rows_in_bulk_have_keys_in_order(self):
        many = Tag.objects.bulk_create([Tag() for _ in range(3000)])
        pks = [tag.pk for tag in many]
        assert pks == sorted(set(pks))
        assert Tag.objects.filter(pk__in=pks[:100]).count() == 100
        no_pks = Tag.objects.bulk_create([Tag(pk=None), Tag(pk=None)])
        assert len({None, *(tag.pk for tag in no_pks)}) == 3
        Tag.objects.bulk_create([Tag(pk=pks[0])], ignore_conflicts=True)

    def test_a_model_may_have_ids_of_another_pool(self):
        assert 0 < Invoice.objects.create().pk < Invoice.objects.create().pk


class LazyKeys(TestCase):
    """Primary keys that are made when their row is inserted."""

    @override_settings(SNOWREDIS={"url": "redis://127.0.0.1:1", "Pool": "shop"})
    def test_objects_forms_and_pages_of_the_admin_need_no_redis_until_a_row_is_inserted(self):
        order = Order(name="tea")
        order.full_clean()
        assert order.pk is order.number is Express().pk is None
        form = modelform_factory(Order, fields=["name"])({"name": "milk"})
        assert form.is_valid()
        assert form.save(commit=False).pk is None
        lines = inlineformset_factory(Order, Line, fields=["order"])(instance=Order())
        assert "TOTAL_FORMS" in str(lines)
        User.objects.create_superuser("root", password="root")
        self.client.login(username="root", password="root")
        assert self.client.get("/admin/shop/order/add/").status_code == 200
        with pytest.raises(snowredis.StoreUnavailable):
            order.save()
        assert order.pk is None

    def test_a_pool_of_tests_goes_on_in_the_next_test(self):
        order = Order()
        with override_settings(SNOWREDIS={"testing": True, "pool": "shop", "min_replicas": 1}):
            with self.assertNumQueries(1) as queries:
                order.save()
            assert queries[0]["sql"].startswith("INSERT")
            assert 0 < order.pk < order.number
            assert Order.objects.get(pk=order.pk) == order
            first = snowredis.next_id()
        # the same memory, so no id is repeated in the next test
        with override_settings(SNOWREDIS={"testing": True, "pool": "shop"}):
            assert snowredis.next_id() > first

    def test_a_field_that_is_no_key_is_filled_with_its_row_and_stays(self):
        order = Order.objects.create()
        number = order.number
        assert 0 < number < 2**63
        assert number != order.pk
        order.save()
        order.refresh_from_db()
        assert order.number == number
        several = Order.objects.bulk_create([Order(), Order(number=5)])
        assert several[0].number > 0
        assert several[1].number == 5
        assert Order.objects.get(pk=several[0].pk).number == several[0].number
        assert Order.objects.update_or_create(name="new")[0].number > 0
        reference = Reference.objects.create()
        assert reference.foreign is None
        assert reference.typed > 0

    def test_an_upsert_makes_a_key_and_keeps_that_of_the_row_as_with_any_default(self):
        old = Order.objects.create(number=77)
        upserted = Order(number=77, name="coffee")
        Order.objects.bulk_create([upserted], update_conflicts=True, unique_fields=["number"], update_fields=["name"])
        assert not Order.objects.filter(pk=upserted.pk).exists()
        (read,) = Order.objects.in_bulk([77], field_name="number").values()
        assert (read.pk, read.name) == (old.pk, "coffee")

    def test_keys_that_are_no_ids_are_refused(self):
        for good in (1, HIGHEST, "249734652741287936"):
            Order(pk=good).full_clean()
        for bad in (0, -1, 2**63, 2.5e17, True, "12a", "0x1"):
            with self.subTest(bad), pytest.raises(ValidationError) as caught:
                Order(pk=bad).full_clean()
            assert "id" in caught.value.message_dict

    def test_foreign_keys_link_tables_and_children_of_a_model_have_its_ids(self):
        assert Line().order_id is Tag().parent_id is None
        column = Line._meta.get_field("order")
        assert column.db_type(connection) == Order._meta.pk.db_type(connection) == "bigint"
        order, tag = Order.objects.create(), Tag.objects.create()
        Line.objects.create(order=order)
        order.tags.add(tag)
        assert Order.objects.filter(tags=tag, line__order_id=order.pk).get() == order
        express = Express.objects.create(name="quick")
        assert express.pk == express.id == express.order_ptr_id
        assert express.number > 0
        express.name = "quicker"
        express.save()
        assert Order.objects.get(pk=express.pk).name == "quicker"
        assert Express.objects.count() == 1

    def test_fields_of_other_kinds_of_ids_are_filled(self):
        assert Ticket().pk is Ticket().public is None
        form = modelform_factory(Ticket, fields=["token"])()
        assert form.initial.get("token") is None
        assert "token" in form.fields
        tickets = [Ticket.objects.create(), *Ticket.objects.bulk_create([Ticket(), Ticket()])]
        for ticket in tickets:
            assert (ticket.pk.version, ticket.token.version) == (7, 4)
            assert (len(ticket.public), len(ticket.mongo)) == (26, 24)
            found = Ticket.objects.get(pk=ticket.pk)
            assert (found.public, found.token, found.number) == (ticket.public, ticket.token, ticket.number)
        assert len({ticket.number for ticket in tickets}) == 3
        Seat.objects.create(ticket=tickets[0])
        assert Seat.objects.get(ticket__public=tickets[0].public).ticket_id == tickets[0].pk
        kept = Ticket.objects.create(pk=uuid.UUID(int=7), public="mine")
        assert (kept.pk.int, kept.public) == (7, "mine")


class Tables(TransactionTestCase):
    def test_a_field_may_be_a_part_of_a_composite_key(self):
        class Pair(models.Model):
            pk = models.CompositePrimaryKey("tenant", "number")
            tenant = models.IntegerField()
            number = SnowflakeField()

            class Meta:
                app_label = "shop"

        with connection.schema_editor() as editor:
            editor.create_model(Pair)
        Pair(tenant=1).save()
        Pair.objects.bulk_create([Pair(tenant=1), Pair(tenant=2)])
        assert len({pair.number for pair in Pair.objects.all()} - {None}) == 3


class Copies(TestCase):
    def test_fields_that_are_cloned_copied_and_derived_deconstruct_as_the_original_does(self):
        class Own(SnowflakeField):
            pass

        assert Own().deconstruct()[1] == f"{__name__}.{Own.__qualname__}"
        for model in (Invoice, Order, Reference):
            for field in model._meta.local_fields:
                assert field.clone().deconstruct()[1:] == copy.deepcopy(field).deconstruct()[1:]
        tag = pickle.loads(pickle.dumps(Tag()))
        assert tag.pk > 0
        assert tag._meta.pk is Tag._meta.pk

    def test_rows_that_are_dumped_and_loaded_have_every_digit(self):
        def rows():
            tables = [sorted(model.objects.values_list()) for model in (Order, Line, Tag)]
            return [*tables, sorted(Order.tags.through.objects.values_list("order_id", "tag_id"))]

        orders = Order.objects.bulk_create([Order() for _ in range(20)] + [Order(pk=HIGHEST, number=HIGHEST)])
        for order in orders:
            Line.objects.create(order=order)
            order.tags.add(Tag.objects.create())
        before = rows()
        for form in ("json", "xml", "jsonl"):
            call_command("dumpdata", "shop", format=form, output=f"dump.{form}")
            Order.objects.all().delete()
            Tag.objects.all().delete()
            call_command("loaddata", f"dump.{form}", verbosity=0)
            assert rows() == before, form


class ReferenceForm(forms.ModelForm):
    class Meta:
        model = Reference
        fields = "__all__"


class Pages(TestCase):
    def test_forms_show_and_take_every_digit_of_an_id(self):
        shown = str(ReferenceForm(instance=Reference(foreign=HIGHEST))["foreign"])
        assert 'type="text"' in shown, shown
        assert f'value="{HIGHEST}"' in shown, shown
        assert "value=" not in str(ReferenceForm()["typed"])
        reference = ReferenceForm({"foreign": " 249734652741287937 ", "typed": "9007199254740993"}).save()
        reference.refresh_from_db()
        assert (reference.foreign, reference.typed) == (249734652741287937, 9007199254740993)
        assert ReferenceForm({"foreign": "1", "typed": ""}).save().typed > 0
        for bad in ("0", "-1", str(2**63), "1.0", "1e3", "1_000", "\uff11", "x", "9" * 5000):
            form = ReferenceForm({"foreign": bad, "typed": "1"})
            assert not form.is_valid(), bad
            assert "foreign" in form.errors, bad
        order = Order.objects.create()
        chosen = modelform_factory(Line, fields=["order"])
        assert f'value="{order.pk}"' in str(chosen())
        assert chosen({"order": str(order.pk)}).save().order == order

    def test_rows_are_added_changed_and_deleted_in_the_admin(self):
        User.objects.create_superuser("root", password="root")
        assert self.client.login(username="root", password="root")

        def post(path, **data):
            answer = self.client.post(path, data)
            assert answer.status_code == 302, answer.content.decode()

        lines = {"TOTAL_FORMS": "1", "INITIAL_FORMS": "0", "MIN_NUM_FORMS": "0", "MAX_NUM_FORMS": "9"}
        lines = {f"line_set-{name}": value for name, value in lines.items()}
        post("/admin/shop/order/add/", name="first", **lines)
        order = Order.objects.get()
        page = self.client.get(f"/admin/shop/order/{order.pk}/change/").content.decode()
        assert str(order.pk) in page
        assert str(order.number) in page
        post(f"/admin/shop/order/{order.pk}/change/", name="second", **lines)
        assert Order.objects.get().name == "second"
        assert Order.objects.get().pk == order.pk
        assert str(order.pk) in self.client.get("/admin/shop/order/").content.decode()
        post("/admin/shop/reference/add/", foreign=str(order.pk), typed="")
        assert Reference.objects.get().foreign == order.pk
        post(f"/admin/shop/order/{order.pk}/delete/", post="yes")
        assert not Order.objects.exists()

    def test_a_path_takes_ids_only(self):
        assert reverse("order", args=[HIGHEST]) == f"/orders/{HIGHEST}/"
        assert self.client.get(f"/orders/{HIGHEST}/").json() == {"id": str(HIGHEST)}
        for bad in ("0", "-1", "007", str(2**63), "1" * 30, "1.0", "\uff11"):
            assert self.client.get(f"/orders/{bad}/").status_code == 404, bad

    @override_settings(MIDDLEWARE=["snowredis.integrations.unavailable.django"])
    def test_no_ids_are_a_503_and_a_wrong_setting_is_an_error(self):
        def fail(request, name):
            raise {"away": snowredis.StoreUnavailable("h", "r"), "wrong": snowredis.ConfigError("x")}[name]

        urls.urlpatterns.append(path("fail/<name>/", fail))
        client, other = (each(raise_request_exception=False) for each in (Client, AsyncClient))
        for refused in (client.get("/fail/away/"), asyncio.run(other.get("/fail/away/"))):
            assert (refused.status_code, refused["Retry-After"]) == (503, "2")
        assert client.get("/fail/wrong/").status_code == asyncio.run(other.get("/fail/wrong/")).status_code == 500


class Json(TestCase):
    """Ids as strings, as docs/how-to/javascript.md says."""

    def setUp(self):
        self.order = Order.objects.create()
        self.line = Line.objects.create(order=self.order)

    def test_responses_and_scripts_of_django(self):
        data = {"id": self.order.pk, "name": self.order.name}
        assert json.loads(JsonResponse(stringify(data)).content) == {"id": str(self.order.pk), "name": "tea"}
        page = Template('{{ data|json_script:"order" }}').render(Context({"data": stringify(data)}))
        assert f'"{self.order.pk}"' in page, page

    @skipUnless(find_spec("ninja"), "needs django-ninja")
    def test_django_ninja(self):
        from ninja import ModelSchema, NinjaAPI
        from ninja.renderers import JSONRenderer
        from ninja.responses import NinjaJSONEncoder

        class OrderSchema(ModelSchema):
            id: JsonSnowflakeId

            class Meta:
                model = Order
                fields = ("id", "name")

        class LineSchema(ModelSchema):
            order: JsonSnowflakeId

            class Meta:
                model = Line
                fields = ("order",)

            @staticmethod
            def resolve_order(row):
                return row.order_id

        JSONRenderer.encoder_class = type("Encoder", (SnowflakeEncoder, NinjaJSONEncoder), {})
        api = NinjaAPI()

        @api.get("/orders/{pk}", response=OrderSchema)
        def one_order(request, pk: JsonSnowflakeId):
            return Order.objects.get(pk=pk)

        @api.get("/line", response=LineSchema)
        def one_line(request):
            return self.line

        urls.urlpatterns.append(path("api/", api.urls))
        got = self.client.get(f"/api/orders/{self.order.pk}")
        assert got.json() == {"id": str(self.order.pk), "name": "tea"}, got.content
        assert self.client.get("/api/line").json() == {"order": str(self.order.pk)}
        described = json.loads(self.client.get("/api/openapi.json").content)
        assert described["components"]["schemas"]["OrderSchema"]["properties"]["id"]["type"] == "string"
        (parameter,) = described["paths"]["/api/orders/{pk}"]["get"]["parameters"]
        assert parameter["schema"]["type"] == "string", parameter


REDIS = "redis://db.example:6379/0"
LOCAL = ("redis://127.0.0.1/0", "unix:///run/redis.sock", "rediss://[::1]:7000/2")


def found(deploy=False, debug=True, caches=None, **given):
    """Return the ids of the messages of the checks with these settings."""
    with override_settings(DEBUG=debug, SNOWREDIS=given, CACHES=caches or {}):
        messages = checks.check_settings()
        messages += checks.check_deployment() + checks.check_redis() if deploy else []
    assert all(message.hint for message in messages)
    return [message.id.removeprefix("snowredis.") for message in messages]


def cache(where):
    return {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": where}}


class Checks(SimpleTestCase):
    """Checks of Django: settings that cannot work, or that repeat ids."""

    def setUp(self):
        # a test runner makes it, and sets DEBUG to False
        self.addCleanup(setattr, mail, "outbox", mail.outbox)
        del mail.outbox
        # no server is there
        self.without_redis = mock.patch.object(checks, "check_redis", list)

    def test_settings_that_cannot_be_read_stop_the_start(self):
        for wrong, says in (
            ({"url": "redis://h", "URL": "redis://i"}, "SNOWREDIS has a name twice: url, URL"),
            ("redis://h", "SNOWREDIS is a str. Write a dict"),
            (None, "SNOWREDIS is a NoneType. Write a dict"),
            ({1: 2}, "unknown setting '1'"),
            ({"testing": "yes"}, "must be True or False, not 'yes'"),
            ({"kind": "uuid7", "pool": "shop"}, "unknown setting 'pool' of uuid7 generators"),
        ):
            with pytest.raises(ImproperlyConfigured, match=says), override_settings(SNOWREDIS=wrong):
                raise AssertionError(wrong)

    def test_redis_is_asked_whether_the_pool_is_there_and_has_these_settings(self):
        checked = {"url": settings.REDIS, "pool": "checked", "deploy": True}
        assert found(**checked) == ["W003"]
        assert found(**checked, ttl=60) == ["W003", "E003"]
        assert found(**{**checked, "pool": "absent"}) == ["W003", "W005"]

    def test_settings_that_cannot_work(self):
        assert found() == []
        for bad in (
            {"layout": "no"},
            {"ttl": "30"},
            {"url": 5},
            {"url": [REDIS, REDIS]},
            {"url": memory_pool(), "min_replicas": 1},
            {"url": "embedded://", "min_replicas": 1},
        ):
            with self.subTest(bad), self.without_redis:
                assert found(**bad, deploy=True, debug=True)[:1] == ["E001"]

    def test_a_layout_that_ends_in_a_month(self):
        month_ms = 30 * 86400_000
        ending = snowredis.Layout(timestamp_bits=32, epoch_ms=int(time.time() * 1000) - 2**32 + month_ms)
        assert found(url=REDIS, layout=ending) == ["W001"]

    def test_pools_of_development_outside_of_it(self):
        pool = memory_pool()
        assert found(url=pool) == found(url="embedded://") == []
        assert found(url=pool, debug=False) == ["E002"]
        assert found(url="embedded://", debug=False) == ["W002"]
        mail.outbox = []
        assert found(url=pool, debug=False) == []

    def test_a_redis_of_this_machine_is_warned_of_in_a_deployment(self):
        assert found(debug=False) == []
        for local in ({}, *({"url": place} for place in LOCAL)):
            with self.subTest(local), self.without_redis:
                assert found(**local, debug=False, deploy=True) == ["W003"]

    def test_one_redis_for_ids_in_a_deployment_that_no_cache_shares(self):
        with self.without_redis:
            assert found(url=REDIS, debug=False, deploy=True) == []
            assert found(url=["redis://a", "redis://b"], debug=False, deploy=True) == ["E001"]
            for where in (REDIS, "redis://:secret@db.example", ["redis://x", REDIS], f"redis://x,{REDIS}"):
                assert found(url=REDIS, deploy=True, caches=cache(where)) == ["W004"], where
            for where in ("redis://db.example:6379/1", "redis://other:6379/0", "127.0.0.1:11211"):
                assert found(url=REDIS, deploy=True, caches=cache(where)) == [], where
            assert found(url=REDIS, deploy=True, caches={"default": {"BACKEND": "x.LocMemCache"}}) == []
