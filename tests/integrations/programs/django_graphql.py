"""GraphQL of graphene-django and strawberry-django: ids are of the type ID, with every digit, and are read so."""

import django
from django.conf import settings

settings.INSTALLED_APPS += ["graphene_django", "strawberry_django"]
django.setup()

import graphene
import strawberry
import strawberry_django
from graphene_django import DjangoObjectType
from graphene_django.forms.converter import convert_form_field
from shop.models import Line, Order, Ticket

from snowredis.integrations.django import SnowflakeFormField

order = Order.objects.create()
line = Line.objects.create(order=order)
ticket = Ticket.objects.create()


class OrderNode(DjangoObjectType):
    class Meta:
        model = Order
        fields = ("id", "number")


class LineNode(DjangoObjectType):
    class Meta:
        model = Line
        fields = ("id", "order")


class Query(graphene.ObjectType):
    order = graphene.Field(OrderNode, pk=graphene.ID())
    line = graphene.Field(LineNode)

    def resolve_order(self, info, pk):
        return Order.objects.get(pk=pk)

    def resolve_line(self, info):
        return line


shown = graphene.Schema(Query)
assert "  id: ID!\n  number: ID!\n" in str(shown), shown
got = shown.execute(
    "query($pk: ID) { order(pk: $pk) { id number } line { order { id } } }", variables={"pk": str(order.pk)}
)
assert got.errors is None, got.errors
assert got.data["order"] == {"id": str(order.pk), "number": str(order.number)}
assert got.data["line"]["order"]["id"] == str(order.pk)
assert isinstance(convert_form_field(SnowflakeFormField()), graphene.ID)


@strawberry_django.type(Order)
class OrderType:
    id: strawberry.auto
    number: strawberry.auto


@strawberry_django.type(Line)
class LineType:
    order_id: strawberry.auto
    order: OrderType


@strawberry_django.type(Ticket)
class TicketType:
    id: strawberry.auto
    public: strawberry.auto


@strawberry.type
class StrawberryQuery:
    @strawberry_django.field
    def order(self, pk: strawberry.ID) -> OrderType:
        return Order.objects.get(pk=pk)

    @strawberry_django.field
    def line(self) -> LineType:
        return line

    @strawberry_django.field
    def ticket(self) -> TicketType:
        return ticket


shown = strawberry.Schema(StrawberryQuery)
assert "  id: ID!\n  number: ID!\n" in str(shown), shown
assert "  id: UUID!\n  public: String!\n" in str(shown), shown
query = "query($pk: ID!) { order(pk: $pk) { id number } line { orderId order { id } } ticket { id public } }"
got = shown.execute_sync(query, {"pk": str(order.pk)})
assert got.errors is None, got.errors
assert got.data["order"] == {"id": str(order.pk), "number": str(order.number)}
assert got.data["line"] == {"orderId": str(order.pk), "order": {"id": str(order.pk)}}
assert got.data["ticket"] == {"id": str(ticket.pk), "public": ticket.public}
