"""Store invoices with numbers without gaps until it is killed. Arguments: URL, how many, seed; 0: create the tables."""

import random
import sys

import sqlalchemy as sa

from snowredis.numbers import TransactionNumbers

url, count, seed = sys.argv[1], int(sys.argv[2]), sys.argv[3]
chosen, metadata = random.Random(seed), sa.MetaData()
numbers = TransactionNumbers("invoices", metadata, period="ever")
invoice = sa.Table("invoice", metadata, sa.Column("number", sa.String(20), primary_key=True))
engine = sa.create_engine(url, connect_args={"timeout": 60})
if not count:
    metadata.create_all(engine)
for _ in range(count):
    with engine.connect() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        for _ in range(chosen.choice((1, 1, 20))):
            connection.execute(sa.insert(invoice), {"number": numbers.next_id(connection)})
        if chosen.random() < 0.3:
            connection.rollback()
        else:
            connection.commit()
