"""Run a command of Django's in this project."""

import os
import sys

from django.core.management import execute_from_command_line

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "web.settings")
execute_from_command_line(sys.argv)
