"""`tiltyard serve`: a directory catalog over HTTP, for clients of the REST namespace specification.

`app` is an ASGI application over a `DirectoryNamespace`; `run` serves it with uvicorn. Requests are read by
`asked`, callers known by `access`, failures told by `failures`; the routes stand in `tiltyard.catalog.rest`.
"""
