"""Insert rows whose ids the column makes: insert_rows DATABASE REDIS POOL PROCESS."""

import sys

import sqlalchemy as sa

import snowredis
from snowredis.integrations.sqlalchemy import SnowflakeId

url, redis_url, pool, process = sys.argv[1:]
snowredis.configure(url=redis_url, pool=pool)
engine = sa.create_engine(url)
table = sa.Table("row", sa.MetaData(), sa.Column("id", SnowflakeId, primary_key=True), sa.Column("by", sa.Integer))
for _ in range(5):
    with engine.begin() as connection:
        connection.execute(sa.insert(table), [{"by": int(process)}] * 100)
# nobody's worker id is free for the next process before all have one
print("done", flush=True)
sys.stdin.read()
