"""Import snowredis where its C extension was not built."""

import sys


class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == "snowredis.snowflake.ids._fastpath":
            raise ModuleNotFoundError(name, name=name)


sys.meta_path.insert(0, Missing())
import snowredis

print(snowredis.IMPLEMENTATION)
