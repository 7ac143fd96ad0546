"""Figures and the page that shows them: one self-contained HTML file per sweep."""
