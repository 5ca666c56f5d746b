"""Namespaces, programs in them, and the path of client, terminal, gateway and server."""
