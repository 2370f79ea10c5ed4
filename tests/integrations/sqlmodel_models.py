"""Models for test_sqlalchemy.py, as SQLModel's users write them: keys to other tables are plain ints."""

from sqlmodel import Field, Relationship, SQLModel

from snowredis.integrations.sqlalchemy import SnowflakeId


class Hero(SQLModel, table=True):
    id: int | None = Field(default=None, primary_key=True, sa_type=SnowflakeId)
    team_id: int | None = Field(default=None, foreign_key="team.id")
    team: "Team" = Relationship(back_populates="heroes")


class Team(SQLModel, table=True):
    id: int | None = Field(default=None, primary_key=True, sa_type=SnowflakeId)
    heroes: list[Hero] = Relationship(back_populates="team")


class Link(SQLModel, table=True):
    team_id: int = Field(foreign_key="team.id", primary_key=True)
    hero_id: int = Field(foreign_key="hero.id", primary_key=True)
