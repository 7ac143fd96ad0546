"""What Python and notebooks see of the package: `prebleexp.run`, `sweep` and `plan`, and what they return."""
