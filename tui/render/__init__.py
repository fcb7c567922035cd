"""Values to text and strips, without a terminal."""
