"""Django: a real project on SQLite.

Each program is a process of its own, so that no settings leak into other tests.
"""

import re
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.support.pools import new_pool
from tests.support.programs import finished
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
        variables = {"DJANGO_SETTINGS_MODULE": "web.settings_of_tests"} | environment
        done = finished(*command, cwd=self.directory, timeout_s=80, forked=not cold, imported=IMPORTED, **variables)
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stdout + done.stderr

    def manage(self, *command: str, fails: bool = False, **settings: Any) -> str:
        return self.run("manage.py", *command, fails=fails, MORE_SETTINGS=repr(settings))

    def program(self, name: str, *arguments: str, cold: bool = False, **settings: Any) -> str:
        """Run programs/django_NAME.py in this directory."""
        module = f"tests.integrations.programs.django_{name}"
        # these do it themselves
        start = "" if name in WITH_APPS else "import django; django.setup(); "
        return self.run("-c", f"{start}import {module}", *arguments, cold=cold, MORE_SETTINGS=repr(settings))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Project that is migrated once."""

    def make(directory: Path) -> None:
        assert finished("-m", "django", "startproject", "web", str(directory)).returncode == 0
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


# --- the whole ----------------------------------------------------------------------------------------


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
    assert "django.GeneratedUUIDField(primary_key=True, serialize=False)" in migration
    assert "django.GeneratedCharField(max_length=26, unique=True)" in migration
    assert "django.GeneratedUUIDField(editable=True, kind='uuid4')" in migration
    assert "django.GeneratedCharField(kind='objectid', max_length=30)" in migration
    assert "django.SnowflakeField(kind='snowflake:?pool=tickets')" in migration


def test_a_column_added_to_a_table_with_rows_is_not_filled_with_one_id_for_all(project: Project) -> None:
    models = project.directory / "shop" / "models.py"
    models.write_text(models.read_text().replace("null=True)", "null=True); code = SnowflakeField()", 1))
    said = project.manage("makemigrations", "--noinput", fails=True)
    assert "NOT NULL constraint" in said or "code" in said
    models.write_text(models.read_text().replace("code = SnowflakeField()", "code = SnowflakeField(null=True)"))
    project.program("added_column")


def test_starting_django_claims_nothing_and_connects_to_nothing(project: Project) -> None:
    project.program("start", cold=True, SNOWREDIS={"URL": "redis://127.0.0.1:1", "Pool": "x"})


# --- models, forms, admin, URLs, REST -----------------------------------------------------------------


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


# program with apps of its own -> packages that it needs
WITH_APPS: dict[str, tuple[str, ...]] = {
    "graphql": ("graphene_django", "strawberry_django"),
    "rest": ("rest_framework", "drf_spectacular"),
}


def test_the_tests_of_the_project_pass(project: Project, server: RedisServer) -> None:
    new_pool(server.url, "checked")
    said = project.manage("test", "shop", REDIS=server.url)
    assert re.search(r"Ran [1-9]\d* tests", said), said


@pytest.mark.parametrize("name", WITH_APPS)
def test_what_a_program_with_more_apps_shows_is_so(project: Project, name: str) -> None:
    # some packages cannot be imported without settings
    missing = [package for package in WITH_APPS[name] if find_spec(package) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    project.program(name)


# --- settings and checks --------------------------------------------------------------------------------


def test_a_setting_that_does_not_exist_stops_every_process_at_its_start(project: Project) -> None:
    said = project.manage("check", fails=True, SNOWREDIS={"pol": "x"})
    assert "ImproperlyConfigured: SNOWREDIS in your settings: unknown setting 'pol'. Did you mean 'pool'?" in said


def test_check_asks_redis_with_deploy_only(project: Project) -> None:
    nowhere = {"url": "redis://127.0.0.1:1"}
    assert "no issues" in project.manage("check", SNOWREDIS=nowhere, DEBUG=False)
    deployed = ("check", "--deploy", "--tag", "snowredis")
    assert "snowredis.E004" in project.manage(*deployed, fails=True, SNOWREDIS=nowhere)


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


def test_the_kind_of_ids_of_a_project_is_a_setting(project: Project) -> None:
    settings = {"KIND": "uuid7", "testing": True}
    checked = project.manage("check", fails=True, SNOWREDIS=settings)
    assert "shop.Order.id: (snowredis.E011) kind='uuid7': its ids are UUID, and this column holds int" in checked
    assert "E001" not in checked
    assert "shop.Ticket" not in checked
    project.manage("shell", "-c", "import snowredis; assert snowredis.next_id().version == 7", SNOWREDIS=settings)


# --- who is there -----------------------------------------------------------------------------------------


def test_workers_show_the_project_and_the_command_as_their_label(project: Project, server: RedisServer) -> None:
    settings = {"url": server.url, "pool": new_pool(server.url, "looked-at")}
    show = ("shell", "-c", "from shop.workers import show_with_this_process; show_with_this_process()")
    said = project.manage(*show, SNOWREDIS=settings)
    assert "django web shell\n" in said
    assert "mine\n" in project.manage(*show, SNOWREDIS=settings | {"label": "mine"})
