"""Conformance: what applications are owed by any proxy, and which of it a proxy keeps."""
