"""What Python and notebooks see of the package: `prebleexp.run` and `prebleexp.sweep`, and what they return."""
