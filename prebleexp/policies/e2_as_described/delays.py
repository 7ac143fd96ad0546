"""The queueing delays of a prefix's requests, by half of the window: those that grow ask for one more GPU."""

from __future__ import annotations

from prebleexp.policies.e2_as_described.memory import Memory
from prebleexp.sim.compiled import compiled


@compiled
def begin_to_watch(mine: Memory, prefix: int) -> None:
    """What was noted of the prefix's delays counts no more."""
    control, entry = mine.tree.control, mine.tree.prefixes[prefix]
    control.clock += 1
    entry.epoch = control.clock
    entry.early = entry.late = 0
    entry.early_s = entry.late_s = 0.0


@compiled
def note_delay(mine: Memory, request: int, delay_s: float, now: float) -> None:
    """A request's queueing delay is known: add it to its prefix's second half of the window."""
    row, control = mine.routed[mine.turn[request]], mine.tree.control
    entry = mine.tree.prefixes[row.prefix]
    if row.epoch != entry.epoch:
        return
    entry.late += 1
    entry.late_s += delay_s
    sample = mine.samples[control.samples]
    sample.time, sample.delay_s, sample.epoch, sample.prefix = now, delay_s, row.epoch, row.prefix
    control.samples += 1


@compiled
def slide_delays(mine: Memory, now: float) -> None:
    """Move delays from the second half of the window to the first, and out of it."""
    control, samples, prefixes = mine.tree.control, mine.samples, mine.tree.prefixes
    half, begin = now - mine.settings.window_s / 2, now - mine.settings.window_s
    while control.first_late < control.samples and samples[control.first_late].time < half:
        sample = samples[control.first_late]
        entry = prefixes[sample.prefix]
        if sample.epoch == entry.epoch:
            entry.late -= 1
            entry.late_s -= sample.delay_s
            entry.early += 1
            entry.early_s += sample.delay_s
        control.first_late += 1
    while control.first_early < control.first_late and samples[control.first_early].time < begin:
        sample = samples[control.first_early]
        entry = prefixes[sample.prefix]
        if sample.epoch == entry.epoch:
            entry.early -= 1
            entry.early_s -= sample.delay_s
        control.first_early += 1


@compiled
def has_grown(mine: Memory, prefix: int) -> bool:
    """Whether the prefix's mean delay has grown by the factor from the first to the second half of the window."""
    entry = mine.tree.prefixes[prefix]
    if entry.early == 0 or entry.late == 0 or entry.early_s <= 0:
        return False
    return entry.late_s / entry.late >= mine.settings.replicate * (entry.early_s / entry.early)
