"""The models as they are after the migration."""

from __future__ import annotations

from sqlalchemy import ForeignKey
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from snowredis.integrations.sqlalchemy import SnowflakeId


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(SnowflakeId, primary_key=True)  # was: mapped_column(primary_key=True)
    name: Mapped[str]


class OrderLine(Base):
    __tablename__ = "order_lines"
    id: Mapped[int] = mapped_column(primary_key=True)
    # SnowflakeId gives foreign keys 64 bits, too
    order_id: Mapped[int] = mapped_column(SnowflakeId, ForeignKey("orders.id"), index=True)
    text: Mapped[str]
