# Type:     python examples/sqlalchemy_orders.py
# Needs:    pip install sqlalchemy aiosqlite; and redis-server, or else pip install 'fakeredis[lua]'
# You see:  two SQLite tables with snowredis ids as keys: objects that have their id after flush(), 10,000 rows with one
#           batch of ids, orders of the last minute found by their key alone, the same under asyncio, and a refused
#           value. To use your own Redis and database, replace embedded:// and sqlite:// with their URLs.

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

from sqlalchemy import ForeignKey, create_engine, func, insert, select
from sqlalchemy.exc import StatementError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

import snowredis
from snowredis.integrations.sqlalchemy import SnowflakeId


class Base(DeclarativeBase):
    pass


class Customer(Base):
    __tablename__ = "customer"
    id: Mapped[int] = mapped_column(SnowflakeId, primary_key=True)
    name: Mapped[str]


class Order(Base):
    __tablename__ = "order"
    id: Mapped[int] = mapped_column(SnowflakeId, primary_key=True)
    # has the type of the column that it refers to, and makes no ids
    customer_id: Mapped[int] = mapped_column(ForeignKey("customer.id"))
    customer: Mapped[Customer] = relationship()


async def with_asyncio() -> None:
    engine = create_async_engine("sqlite+aiosqlite://")
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with AsyncSession(engine) as session:
        customer = Customer(name="Grace")
        session.add_all([Order(customer=customer) for _ in range(1_000)])
        await session.commit()
        orders = await session.scalar(select(func.count(Order.id.distinct())))
    await engine.dispose()
    print(f"under asyncio: {orders:,} orders with different ids")
    assert orders == 1_000


snowredis.configure(url="embedded://", pool="sqlalchemy", label="sqlalchemy_orders")
engine = create_engine("sqlite://")
Base.metadata.create_all(engine)

with Session(engine) as session:
    order = Order(customer=Customer(name="Ada"))
    session.add(order)
    session.flush()
    print(f"order {order.id} of customer {order.customer_id}")
    customer_id = order.customer_id

    began = time.perf_counter()
    session.execute(insert(Order), [{"customer_id": customer_id}] * 10_000)
    print(f"10,000 more orders in {time.perf_counter() - began:.2f} s")
    session.commit()

    now = datetime.now(UTC)
    layout = snowredis.layouts["default"]
    low, high = layout.id_range(now - timedelta(minutes=1), now + timedelta(seconds=1))
    recent = session.scalar(select(func.count()).where(Order.id >= low, Order.id < high))
    print(f"orders of the last minute, by their key: {recent:,}")
    assert recent == 10_001

    try:
        session.scalar(select(Order).where(Order.id == float(order.id)))  # its digits are lost
    except StatementError as error:
        print("refused:", str(error.orig).partition(". ")[0])

asyncio.run(with_asyncio())
snowredis.close()
