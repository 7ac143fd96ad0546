"""What all pages share: one HTML file that needs no network and no other file.

Scripts are part of the page and named by their checksums in its security policy, so that a name that gets into the
page as markup would still not run. vl-convert gives Vega-Lite as one script.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prebleexp.errors import InvalidInput
from prebleexp.experiment import durable
from prebleexp.report.palette import GRID, INK, STYLES

if TYPE_CHECKING:
    from markupsafe import Markup

TEMPLATES = Path(__file__).with_name("templates")
MOST_ROWS = 1000
"""of a table in a page; its file has all"""


def render(template: str, *, scripts: Sequence[str] = (), charts: bool = False, **values: Any) -> str:
    """The page that a template makes of these values. `scripts` lie beside the templates; `charts` adds Vega-Lite."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    names = ("chart.js", *scripts) if charts else scripts
    texts = [vega()] if charts else []
    texts += [(TEMPLATES / name).read_text(encoding="utf-8") for name in names]
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["breakable"] = breakable
    return environment.get_template(template).render(
        values,
        scripts=[Markup(text) for text in texts],  # noqa: S704 - our own
        script_hashes=[_hash(text) for text in texts] or ["'none'"],
        styles=STYLES,
        ink=INK,
        grid=GRID,
        most_rows=MOST_ROWS,
    )


def breakable(name: str) -> Markup:
    """A name that a narrow column may break where its words end, and nowhere else."""
    from markupsafe import Markup, escape

    return Markup("_<wbr>").join(escape(word) for word in name.split("_"))


@cache
def vega() -> str:
    """Vega, Vega-Lite and Vega-Embed, which is left in `window.vegaEmbed`."""
    import vl_convert

    bundle = str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))
    return bundle.replace("</script", r"<\/script").replace("<!--", r"<\!--")


def write(path: Path, text: str) -> Path:
    """All or nothing. Raises InvalidInput for a folder that cannot be written."""
    with into(path.parent):
        durable.write(path, text.encode())
    return path


@contextmanager
def into(folder: Path) -> Iterator[None]:
    """While files are written to a report's folder, which is made. Raises InvalidInput if it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise InvalidInput(f"report folder {folder} cannot be written: {error.strerror}") from error


def packed(data: Any) -> str:
    """Data for a page's scripts: JSON, gzipped, as base64; templates/chart.js unpacks it."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
