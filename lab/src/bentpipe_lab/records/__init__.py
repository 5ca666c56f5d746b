"""What is kept of a measurement: verdicts and samples."""
