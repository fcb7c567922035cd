"""What runs beside torch: only the standard library, torch (late) and each other; see docs/worker.md."""
