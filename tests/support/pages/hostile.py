"""Names that a page must show as text."""

from __future__ import annotations

HOSTILE = {
    "script": "<script>alert(1)</script>",
    "quotes": "\"'><img src=x onerror=alert(1)>",
    "entity": "&lt;b&gt; & &amp;",
    "template": "{{ 7 * 7 }}{% raw %}",
    "math": "$\\frac{1}{0}$ a_b^c",
    "non-ascii": "路由 ελάχιστο 🚀 é",
    "right to left": "مرحبا \u202e reversed",
    "long": "policy_" * 60,
    "style": "</style><style>*{display:none}",
}
HARM = "<script>document.title = 'gone'</script><img src=x onerror=alert(1)>"
