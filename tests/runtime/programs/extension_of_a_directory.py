"""Look for the C extension in a directory first, and make an id: extension_of_a_directory DIRECTORY."""

import sys

import snowredis.runtime

snowredis.runtime.__path__.insert(0, sys.argv[1])
print(snowredis.IMPLEMENTATION, snowredis.connect(snowredis.testing.memory_pool()).next_id() > 0)
