"""The service under uvicorn: limits of connections, the protocol that applies them, and the server itself.

`snowredis serve` uses uvicorn_server.py, gunicorn uses gunicorn_worker.py. Other ASGI servers have only the limits of
service.py, which see complete requests.
"""
