"""Execution of measurements over one path, and of several paths side by side."""
