"""Show, fill and send forms with ids in them."""

from django import forms
from shop.models import Line, Order, Reference


class Form(forms.ModelForm):
    class Meta:
        model = Reference
        fields = "__all__"


shown = str(Form(instance=Reference(foreign=2**63 - 1))["foreign"])
assert 'type="text"' in shown, shown
assert 'value="9223372036854775807"' in shown, shown
assert "value=" not in str(Form()["typed"])
reference = Form({"foreign": " 249734652741287937 ", "typed": "9007199254740993"}).save()
reference.refresh_from_db()
assert (reference.foreign, reference.typed) == (249734652741287937, 9007199254740993)
assert Form({"foreign": "1", "typed": ""}).save().typed > 0
for bad in ("0", "-1", str(2**63), "1.0", "1e3", "1_000", "\uff11", "x", "9" * 5000):
    form = Form({"foreign": bad, "typed": "1"})
    assert not form.is_valid(), bad
    assert "foreign" in form.errors, bad
order = Order.objects.create()
chosen = forms.modelform_factory(Line, fields=["order"])
assert f'value="{order.pk}"' in str(chosen())
assert chosen({"order": str(order.pk)}).save().order == order
