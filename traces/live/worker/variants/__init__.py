"""The ways to compute attention, a group a module; each module has `VARIANTS`."""
