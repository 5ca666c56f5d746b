"""The look that all figures share, and their text as SVG."""

import io

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.figure import Figure

INK, MUTED, FAINT = "#1d2733", "#66727f", "#e3e8ed"
mpl.rcParams.update(
    {
        "font.family": "sans-serif",
        "font.size": 10,
        "axes.edgecolor": MUTED,
        "axes.labelcolor": MUTED,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlecolor": INK,
        "axes.titlelocation": "left",
        "axes.titlesize": 11,
        "axes.titleweight": "bold",
        "xtick.color": MUTED,
        "ytick.color": MUTED,
        "text.color": INK,
        "grid.color": FAINT,
        "svg.hashsalt": "bentpipe",
    }
)


def svg(figure: Figure) -> str:
    """The drawing as text, the same for the same figures."""
    out = io.StringIO()
    figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    text = out.getvalue()
    return text[text.index("<svg") :]


def told(drawing: str, alternative: str) -> Markup:
    """A drawing of ours as part of a page; what a reader with a screen reader gets of it is the alternative text."""
    head = f'<svg role="img" aria-label="{Markup.escape(alternative)}"'
    return Markup(drawing.replace("<svg", head, 1))  # noqa: S704 (our own drawing)
