# Type:  DATABASE_URL=postgresql+psycopg://… python examples/migrate_django/manage.py migrate
# A model with auto-increment keys that moves to snowredis ids: see docs/how-to/migrate.md#with-django
import os
import sys
from pathlib import Path

from django.core.management import execute_from_command_line

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
sys.path.insert(0, str(Path(__file__).parent))
execute_from_command_line(sys.argv)
