"""The settings of the project, of which none is for snowredis."""

from web.settings_of_tests import *  # noqa: F403

del SNOWREDIS  # noqa: F821
