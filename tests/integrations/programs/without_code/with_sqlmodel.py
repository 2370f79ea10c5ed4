"""SQLModel, without the type of the SQLAlchemy integration."""

from sqlmodel import BigInteger, Field, Session, SQLModel, create_engine, select

import snowredis


class Order(SQLModel, table=True):
    id: int = Field(default_factory=snowredis.next_id, primary_key=True, sa_type=BigInteger)


engine = create_engine("sqlite://")
SQLModel.metadata.create_all(engine)
with Session(engine) as session:
    session.add_all([Order() for _ in range(10)])
    session.commit()
    print(*session.exec(select(Order.id)), sep="\n")
