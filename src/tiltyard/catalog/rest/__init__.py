"""The REST form of a catalog: the table of its routes, what goes over the wire, and the client.

The server is `tiltyard.server`; both go by the one table in `routes`.
"""
