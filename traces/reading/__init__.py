"""Bytes to event table: detection, decoding, repair."""
