"""Fields of other kinds of ids are filled when their rows are inserted."""

import uuid

from django.forms import modelform_factory
from shop.models import Order, Seat, Ticket

assert Ticket().pk is None
assert Ticket().public is None
form = modelform_factory(Ticket, fields=["token"])()
assert form.initial.get("token") is None
assert "token" in form.fields
tickets = [Ticket.objects.create(), *Ticket.objects.bulk_create([Ticket(), Ticket()])]
for ticket in tickets:
    assert ticket.pk.version == 7
    assert ticket.token.version == 4
    assert (len(ticket.public), len(ticket.mongo)) == (26, 24)
    found = Ticket.objects.get(pk=ticket.pk)
    assert (found.public, found.token, found.number) == (ticket.public, ticket.token, ticket.number)
assert len({ticket.number for ticket in tickets}) == 3
seat = Seat.objects.create(ticket=tickets[0])
assert Seat.objects.get(ticket__public=tickets[0].public).ticket_id == tickets[0].pk
kept = Ticket.objects.create(pk=uuid.UUID(int=7), public="mine")
assert (kept.pk.int, kept.public) == (7, "mine")
assert Order.objects.create().pk > 2**40
