"""Trace data in, kept, out."""
