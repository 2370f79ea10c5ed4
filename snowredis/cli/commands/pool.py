"""`pool`: the group of commands that create, show and delete pools."""

from __future__ import annotations

from snowredis.cli.commands import pool_create, pool_delete, pool_show
from snowredis.cli.options import Commands, Parser, add_command


def add_to(commands: Commands[Parser]) -> None:
    parser = add_command(
        commands,
        "pool",
        summary="create, show and delete pools",
        examples=[
            ("snowredis pool create orders --ttl 30", "before the first start of a fleet"),
            ("snowredis pool show", "all pools of a Redis"),
            ("snowredis pool delete orders", "asks first"),
        ],
    )
    actions = parser.add_subparsers(metavar="ACTION", title="actions", parser_class=Parser)
    for module in (pool_create, pool_show, pool_delete):
        module.add_to(actions)
