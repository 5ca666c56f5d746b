"""Programs that workloads drive inside the client's namespace."""
