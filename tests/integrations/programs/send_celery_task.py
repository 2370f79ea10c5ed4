"""Send a task, and print its id, the id that it saw and the one that it made."""

from tests.integrations.celery_app import answer

sent = answer.delay()
print(sent.id, *sent.get(30))
