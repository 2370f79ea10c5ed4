"""Django: a real project on SQLite.

Each program is a process of its own, so that no settings leak into other tests.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from snowredis.cli import main
from tests.support import warm
from tests.support.programs import ROOT
from tests.support.servers import RedisServer
from tests.support.shared import made_once

pytest.importorskip("django")

# what needs no settings
IMPORTED = ("django.core.management", "django.db.models", "django.contrib.admin.options", "django.test")
TEMPLATE = Path(__file__).parent / "programs" / "django_project"


class Project:
    """Directory with manage.py, in which programs import this tree's snowredis."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def run(self, *command: str, fails: bool = False, cold: bool = False, **environment: str) -> str:
        run = subprocess.run if cold else partial(warm.run, imported=IMPORTED)
        done = run(
            [sys.executable, *command],
            cwd=self.directory,
            env={**os.environ, "PYTHONPATH": str(ROOT), "DJANGO_SETTINGS_MODULE": "web.settings", **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=80,
        )
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stdout + done.stderr

    def manage(self, *command: str, fails: bool = False, **settings: Any) -> str:
        return self.run("manage.py", *command, fails=fails, MORE_SETTINGS=repr(settings))

    def program(self, name: str, *arguments: str, cold: bool = False, **settings: Any) -> str:
        """Run programs/django_NAME.py in this directory."""
        module = f"tests.integrations.programs.django_{name}"
        return self.run("-m", module, *arguments, cold=cold, MORE_SETTINGS=repr(settings))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Project that is migrated once."""

    def make(directory: Path) -> None:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(TEMPLATE, directory, ignore=ignored, dirs_exist_ok=True)
        project = Project(directory)
        project.manage("makemigrations", "shop")
        project.manage("migrate", "-v", "0")

    return made_once(tmp_path_factory, "django_project", make)


@pytest.fixture
def project(template: Path, tmp_path: Path) -> Project:
    shutil.copytree(template, tmp_path / "p")
    return Project(tmp_path / "p")


@pytest.fixture
def on_redis(server: RedisServer, capsys: pytest.CaptureFixture[str]) -> Callable[[str], dict[str, Any]]:
    """Settings for a pool on the private server, which is known to be new."""

    def make(pool: str) -> dict[str, Any]:
        assert main(["pool", "create", pool, "--url", server.url]) == 0
        capsys.readouterr()
        return {"url": server.url, "pool": pool}

    return make


def need(*packages: str) -> None:
    """Skip the test if a package is missing; some cannot be imported without settings."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")


# --- the whole ----------------------------------------------------------------------------------------


def test_four_processes_fill_one_table_and_no_id_is_repeated(
    project: Project, on_redis: Callable[[str], dict[str, Any]]
) -> None:
    project.program("four_processes", SNOWREDIS=on_redis("four"))


def test_migrations_are_complete_and_stable(project: Project) -> None:
    assert "No changes detected" in project.manage("makemigrations", "--check", "--dry-run")
    migration = (project.directory / "shop" / "migrations" / "0001_initial.py").read_text()
    assert "snowredis.integrations.django.SnowflakeField(primary_key=True, serialize=False)" in migration
    assert "snowredis.integrations.django.SnowflakeField(unique=True)" in migration
    assert "SnowflakeField(lazy=False, primary_key=True, serialize=False)" in migration
    assert "SnowflakeField(editable=True, verbose_name='typed in')" in migration
    assert "SnowflakeField(default=None, null=True)" in migration
    assert "kind='snowflake:?pool=invoices'" in migration
    assert "partial" not in migration
    assert "lambda" not in migration
    project.program("copied_fields")


def test_a_column_added_to_a_table_with_rows_is_not_filled_with_one_id_for_all(project: Project) -> None:
    project.manage("shell", "-c", "from shop.models import Tag; Tag.objects.bulk_create([Tag(), Tag()])")
    models = project.directory / "shop" / "models.py"
    models.write_text(models.read_text().replace("null=True)", "null=True); code = SnowflakeField()", 1))
    said = project.manage("makemigrations", "--noinput", fails=True)
    assert "NOT NULL constraint" in said or "code" in said
    models.write_text(models.read_text().replace("code = SnowflakeField()", "code = SnowflakeField(null=True)"))
    project.manage("makemigrations", "shop")
    project.manage("migrate", "-v", "0")
    project.program("added_column")
    assert "No changes detected" in project.manage("makemigrations", "--check", "--dry-run")


def test_starting_django_claims_nothing_and_connects_to_nothing(project: Project) -> None:
    project.program("start", cold=True, SNOWREDIS={"URL": "redis://127.0.0.1:1", "Pool": "x"})


# --- models -------------------------------------------------------------------------------------------


def test_objects_forms_and_pages_of_the_admin_need_no_redis_until_a_row_is_inserted(project: Project) -> None:
    project.program("lazy_keys", SNOWREDIS={"url": "redis://127.0.0.1:1", "Pool": "shop"})


def test_it_is_the_primary_key_of_models_and_link_tables_that_declare_none(project: Project) -> None:
    settings = {"TESTING": True, "pool": "auto"}
    field = "snowredis.integrations.django.SnowflakeAutoField"
    apps = project.directory / "shop" / "apps.py"
    apps.write_text(apps.read_text().replace("django.db.models.BigAutoField", field))
    project.program("auto_field", SNOWREDIS=settings)
    said = project.manage("makemigrations", "--dry-run", "-v", "3", SNOWREDIS=settings)
    assert f"field={field}(auto_created=True, primary_key=True" in said
    # what a migration makes of link tables follows the setting, and not the app
    narrow = "django.db.models.AutoField"
    checked = project.manage("check", "--fail-level", "WARNING", fails=True, DEFAULT_AUTO_FIELD=narrow)
    assert "(snowredis.W006) DEFAULT_AUTO_FIELD has 32 bits" in checked
    assert "shop.Order_tags" in checked
    checked = project.manage("check", fails=True, DEFAULT_AUTO_FIELD=field)
    assert "(snowredis.E012) DEFAULT_AUTO_FIELD is SnowflakeAutoField, but not for auth.Group_perm" in checked
    assert "shop.Order_tags" not in checked


def test_a_primary_key_that_is_not_lazy_is_there_before_the_row_and_takes_one_insert(project: Project) -> None:
    project.program("eager_keys")


def test_a_plain_field_is_filled_when_its_row_is_inserted(project: Project) -> None:
    project.program("plain_field")


def test_keys_to_it_and_children_of_it_have_its_column_type_and_no_default(project: Project) -> None:
    project.program("foreign_keys")


def test_a_composite_primary_key_may_hold_one(project: Project) -> None:
    import django

    if django.VERSION < (5, 2):
        pytest.skip("Django has composite primary keys since 5.2")
    project.program("composite_key")


@pytest.mark.parametrize("form", ["json", "xml", "jsonl"])
def test_dumpdata_and_loaddata_keep_every_digit(project: Project, form: str) -> None:
    project.program("dump_and_load", form)


def test_the_model_refuses_what_is_no_id(project: Project) -> None:
    project.program("refused_keys")


# --- forms, admin, URLs, REST ---------------------------------------------------------------------------


def test_forms_show_and_take_ids_as_text_digit_by_digit(project: Project) -> None:
    project.program("forms")


def test_the_admin_adds_changes_and_deletes(project: Project) -> None:
    project.program("admin_pages")


def test_the_path_converter_takes_ids_only(project: Project) -> None:
    project.program("paths")


def test_rest_framework_carries_ids_and_keys_as_strings(project: Project) -> None:
    pytest.importorskip("rest_framework")
    project.program("rest")


def test_openapi_descriptions_say_string_where_the_json_has_strings(project: Project) -> None:
    need("rest_framework", "drf_spectacular")
    project.program("openapi")


def test_json_of_django_and_of_ninja_has_strings(project: Project) -> None:
    need("ninja")
    project.program("json")


def test_graphql_has_the_type_id_for_ids(project: Project) -> None:
    need("graphene_django", "strawberry_django")
    project.program("graphql")


# --- settings and checks --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"pol": "x"}, "unknown setting 'pol'. Did you mean 'pool'? The settings are: url, pool, layout"),
        ({"url": "redis://h", "URL": "redis://i"}, "SNOWREDIS has a name twice: url, URL"),
        ("redis://h", "SNOWREDIS is a str. Write a dict"),
        (None, "SNOWREDIS is a NoneType. Write a dict"),
        ({1: 2}, "unknown setting '1'"),
        ({"testing": "yes"}, "SNOWREDIS['testing'] must be True or False, not 'yes'"),
    ],
)
def test_names_that_there_are_not_stop_every_process_at_its_start(
    project: Project, settings: object, says: str
) -> None:
    said = project.manage("check", fails=True, SNOWREDIS=settings)
    assert "ImproperlyConfigured" in said
    assert says in said


def test_checks_say_what_cannot_work_and_what_repeats_ids(project: Project) -> None:
    project.program("checks")


def test_check_asks_redis_with_deploy_only(project: Project, on_redis: Callable[[str], dict[str, Any]]) -> None:
    settings = on_redis("checked")
    nowhere = "redis://127.0.0.1:1"
    assert "no issues" in project.manage("check", SNOWREDIS=settings)
    assert "no issues" in project.manage("check", SNOWREDIS={"url": nowhere}, DEBUG=False)

    def deployed(*, fails: bool, **more: object) -> str:
        return project.manage("check", "--deploy", "--tag", "snowredis", fails=fails, SNOWREDIS=settings | more)

    assert "snowredis.E" not in deployed(fails=False)
    said = deployed(ttl=60, fails=True)
    assert "snowredis.E003" in said
    assert "pool 'checked' was created with" in said
    assert "snowredis.W005" in deployed(pool="absent", fails=False)
    assert "snowredis.E004" in deployed(url=nowhere, fails=True)


def test_variables_are_used_where_settings_say_nothing(project: Project) -> None:
    said = project.run(
        "manage.py",
        "check",
        fails=True,
        DJANGO_SETTINGS_MODULE="web.settings_without_snowredis",
        SNOWREDIS_LAYOUT="nonsense",
    )
    assert "snowredis.E001" in said
    assert "'nonsense'" in said


def test_override_settings_moves_the_next_id_to_another_pool(project: Project) -> None:
    project.program("overridden_settings")


def test_fields_of_other_kinds_fill_themselves(project: Project) -> None:
    migration = (project.directory / "shop" / "migrations" / "0001_initial.py").read_text()
    assert "django.GeneratedUUIDField(primary_key=True, serialize=False)" in migration
    assert "django.GeneratedCharField(max_length=26, unique=True)" in migration
    assert "django.GeneratedUUIDField(editable=True, kind='uuid4')" in migration
    assert "django.GeneratedCharField(kind='objectid', max_length=30)" in migration
    assert "django.SnowflakeField(kind='snowflake:?pool=tickets')" in migration
    project.program("other_kinds")


def test_the_kind_of_ids_of_a_project_is_a_setting(project: Project) -> None:
    settings = {"KIND": "uuid7", "testing": True}
    checked = project.manage("check", fails=True, SNOWREDIS=settings)
    assert "shop.Order.id: (snowredis.E011) kind='uuid7': its ids are UUID, and this column holds int" in checked
    assert "E001" not in checked
    assert "shop.Ticket" not in checked
    project.manage("shell", "-c", "import snowredis; assert snowredis.next_id().version == 7", SNOWREDIS=settings)
    wrong = project.manage("check", fails=True, SNOWREDIS={"kind": "uuid7", "pool": "shop"})
    assert "SNOWREDIS in your settings: unknown setting 'pool' of uuid7 generators" in wrong


# --- who is there -----------------------------------------------------------------------------------------


def test_the_command_shows_the_workers_of_the_pool_in_the_settings(
    project: Project, on_redis: Callable[[str], dict[str, Any]]
) -> None:
    settings = on_redis("looked-at")
    said = project.program("workers", SNOWREDIS=settings)
    assert "pool looked-at at unix://" in said
    assert "django web" in said
    shown: dict[str, Any] = json.loads(project.manage("snowredis_workers", "--json", "--all", SNOWREDIS=settings))
    assert shown["pool"]["name"] == "looked-at"
    assert "no worker is alive" in project.manage("snowredis_workers", SNOWREDIS=settings)


def test_the_command_says_what_it_cannot_show(project: Project) -> None:
    assert "A pool in memory has no workers elsewhere" in project.manage("snowredis_workers", fails=True)
    said = project.manage("snowredis_workers", fails=True, SNOWREDIS={"url": "redis://127.0.0.1:1"})
    assert "cannot be used" in said


def test_the_label_names_the_project_and_the_command(
    project: Project, on_redis: Callable[[str], dict[str, Any]]
) -> None:
    show = ("shell", "-c", "from shop.workers import show_with_this_process; show_with_this_process()")
    settings = on_redis("labelled")
    assert '"label": "django web shell"' in project.manage(*show, SNOWREDIS=settings)
    assert '"label": "mine"' in project.manage(*show, SNOWREDIS=settings | {"label": "mine"})
