"""What became of the requests that were to be moved from one GPU to another, in words (docs/migration.md)."""

from __future__ import annotations

from prebleexp.sim.history import History


def sentence(history: History) -> str:
    """Empty where none was."""
    if not history.moves:
        return ""
    done = [one for one in history.moves if one.moved]
    ran = [one for one in done if one.running]
    tokens, away_s = sum(one.copied_tokens for one in ran), sum(one.stopped_s for one in ran)
    aborted = len(history.moves) - len(done)
    each_s = away_s / max(len(ran), 1)
    took = f", which took {tokens:,} tokens of KV along and stood still for {each_s:.3g} s on average" if ran else ""
    return (
        f"{len(done):,} of {len(history.moves):,} moves were made, {len(done) - len(ran):,} of requests that waited "
        f"and {len(ran):,} of ones that ran{took}; {aborted:,} were aborted"
    )
