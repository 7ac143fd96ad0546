"""The rules of E2 as released, compiled. Section names in docstrings are those of spec e2-as-released."""
