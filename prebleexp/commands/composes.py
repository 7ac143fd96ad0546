"""`python -m prebleexp composes`: which features of a run are not modelled together."""

from __future__ import annotations

import json
import sys

from prebleexp.commands.arguments import Command, Commands, Given, choice


def _composes(given: Given) -> int:
    """Print the pairs that are refused; 0."""
    from prebleexp.launch import tables
    from prebleexp.sim import compatibility

    refused = [(names, refusal) for *names, refusal in compatibility.refused_pairs()]
    triples = [(names, refusal) for *names, refusal in compatibility.refused_triples()]
    pairs = len([*compatibility.pairs()])
    if given["output"] == "json":
        found = {
            "pairs": pairs,
            "refused": [[*names, refusal.cause, refusal.sentence] for names, refusal in refused],
            "refused_triples": [[*names, refusal.cause, refusal.sentence] for names, refusal in triples],
        }
        json.dump(found, sys.stdout, indent=1, ensure_ascii=False)
        print()
        return 0
    lines = [[" × ".join(names), refusal.cause, refusal.sentence] for names, refusal in (*refused, *triples)]
    tables.show(["features", "cause", "what a run is told"], lines)
    print(f"{len(refused)} of {pairs} pairs are refused, and {len(triples)} of the triples whose pairs are not")
    return 0


COMMANDS: Commands = {
    "": Command(
        "which features are not modelled together: pairs, why, and what a run that has both is told. What an engine "
        "cannot do stands with the engine",
        _composes,
        "python -m prebleexp composes output=json",
        settings=(choice("output", "how to print", "table", "json"),),
    )
}
