"""What several workloads are made of."""
