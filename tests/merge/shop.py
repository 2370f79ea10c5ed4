"""A shop's tables, with every way in which columns refer to ids, for the tests and scripts of migrations."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

metadata = sa.MetaData()

customers = sa.Table(
    "customers",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.String(40), nullable=False),
    # refers to its own table
    sa.Column("referrer_id", sa.Integer, sa.ForeignKey("customers.id", name="customers_referrer")),
)
# an id that is also a reference, as of joined tables
companies = sa.Table(
    "companies",
    metadata,
    sa.Column(
        "id",
        sa.Integer,
        sa.ForeignKey("customers.id", name="companies_customer", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    sa.Column("tax", sa.String(20)),
)
contracts = sa.Table(
    "contracts",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True),
    # two steps away
    sa.Column("company_id", sa.Integer, sa.ForeignKey("companies.id", name="contracts_company"), index=True),
)
memberships = sa.Table(
    "memberships",
    metadata,
    # a key of two columns, one of which is an id
    sa.Column("club", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column(
        "customer_id",
        sa.Integer,
        sa.ForeignKey("customers.id", name="memberships_customer"),
        primary_key=True,
        autoincrement=False,
    ),
    sa.Column("since", sa.Integer),
)
visits = sa.Table(
    "visits",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column(
        "club",
        sa.Integer,
        nullable=False,
    ),
    sa.Column("customer_id", sa.Integer, nullable=False),
    # composite
    sa.ForeignKeyConstraint(
        ["club", "customer_id"], ["memberships.club", "memberships.customer_id"], name="visits_membership"
    ),
)
notes = sa.Table(
    "notes",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    # no constraint: named by hand
    sa.Column("about", sa.Integer, nullable=False),
    sa.UniqueConstraint("about", "id", name="notes_about_id"),
)
BY_HAND = ["notes.about=customers.id"]


def create(engine: sa.Engine, rows: int = 1000) -> None:
    """Create the tables with *rows* customers."""
    metadata.create_all(engine)
    ids = range(1, rows + 1)
    with engine.begin() as connection:
        connection.execute(
            customers.insert(),
            [{"id": i, "name": f"c{i}", "referrer_id": i // 2 or None} for i in ids],
        )
        connection.execute(companies.insert(), [{"id": i, "tax": f"t{i}"} for i in ids if i % 3 == 0])
        connection.execute(contracts.insert(), [{"company_id": i} for i in ids if i % 6 == 0])
        connection.execute(memberships.insert(), [{"club": i % 4, "customer_id": i} for i in ids if i % 2])
        connection.execute(visits.insert(), [{"club": i % 4, "customer_id": i} for i in ids if i % 2])
        connection.execute(notes.insert(), [{"about": i} for i in ids])
        if engine.dialect.name == "postgresql":
            # rows with given ids do not move a sequence
            connection.execute(sa.text("SELECT setval('customers_id_seq', (SELECT max(id) FROM customers))"))


def relations(connection: sa.Connection) -> dict[str, list[tuple[Any, ...]]]:
    """Return what rows belong together, by names instead of ids: equal before and after any migration."""
    referrers = customers.alias()
    queries = {
        "referrers": sa.select(customers.c.name, referrers.c.name).outerjoin_from(
            customers, referrers, customers.c.referrer_id == referrers.c.id
        ),
        "companies": sa.select(customers.c.name, companies.c.tax).join_from(companies, customers),
        "contracts": sa.select(contracts.c.number, companies.c.tax).join_from(contracts, companies),
        "memberships": sa.select(memberships.c.club, customers.c.name).join_from(memberships, customers),
        "visits": sa.select(visits.c.id, customers.c.name).join_from(
            visits, customers, visits.c.customer_id == customers.c.id
        ),
        "notes": sa.select(notes.c.id, customers.c.name).join_from(
            notes, customers, notes.c.about == customers.c.id
        ),
    }
    return {
        name: sorted((tuple(row) for row in connection.execute(query)), key=str)
        for name, query in queries.items()
    }


def schema_of(engine: sa.Engine) -> dict[str, Any]:
    """Return columns, keys and indexes of the tables, in no order: to compare before and after."""
    inspector = sa.inspect(engine)
    return {
        table: {
            "columns": sorted(
                (column["name"], str(column["type"]), column["nullable"])
                for column in inspector.get_columns(table)
            ),
            "key": inspector.get_pk_constraint(table)["constrained_columns"],
            "indexes": sorted(
                (index["name"], tuple(index["column_names"]), index["unique"])
                for index in inspector.get_indexes(table)
            ),
            "foreign keys": sorted(
                (key["name"], tuple(key["constrained_columns"]), key["referred_table"], str(key["options"]))
                for key in inspector.get_foreign_keys(table)
            ),
        }
        for table in sorted(metadata.tables)
    }
