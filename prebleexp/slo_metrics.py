"""How well a run kept what was promised, in numbers: what a run under other limits has others of. Each is a name,
words, a unit, a meaning and, where that is not more, what is better; `prebleexp.service.attainment` has the values."""

from __future__ import annotations

_ENDS = (
    "end of its 95 % interval, by what this run's stream says on its own: over twenty contiguous batches of its "
    "requests (prebleexp.service.batches). It is of streams like this one, if that is stationary, and says nothing of "
    "other days. Nothing for fewer than 50 requests."
)
METRICS: tuple[tuple[str, ...], ...] = (
    ("slo_attainment", "attainment", "share",
     "The share of the requests that were due which were good: finished, within all limits of the service "
     "level (slo). Of the unfinished only those count as good that can break no limit any more, of the "
     "refused none. Nothing where nothing was promised."),
    ("slo_margin", "margin to the promised share", "share",
     "By how much the share of the requests within a limit exceeds the share that was promised it (0.99, of "
     "a limit for p99); of several the one that is nearest to being broken, or broken worst. Nothing where "
     "all limits are for each request."),
    ("slo_attainment_low", "lower end of attainment", "share", f"Of slo_attainment the lower {_ENDS}"),
    ("slo_attainment_high", "upper end of attainment", "share", f"Of slo_attainment the upper {_ENDS}"),
    ("slo_margin_low", "lower end of the margin", "share", f"Of slo_margin the lower {_ENDS}"),
    ("slo_margin_high", "upper end of the margin", "share", f"Of slo_margin the upper {_ENDS}"),
    ("slo_missed_batches", "batches with a miss", "batches",
     "In how many of these batches one or more requests were not good: where misses fall into few of them, even that "
     "interval is too narrow.", "lower"),
    ("slo_missed_first", "misses of the first batch", "share",
     "Of all misses in these batches the share in the first one: near 1 where caches were cold and nothing else went "
     "wrong. slo.warmup_s leaves that out.", "neither"),
    ("slo_missed_worst", "misses of the two worst batches", "share",
     "Of all misses in these batches the share in the two that have the most: above a half where one or two busy "
     "stretches decide how wide the interval is.", "neither"),
    ("after_loss_attainment", "attainment after a loss", "share",
     "The share of the requests due in the minute after the first GPU was lost which were good; nothing where none was "
     "lost, or nothing was promised."),
    ("after_loss_margin", "margin after a loss", "share",
     "Of these requests, as slo_margin: of the limits for shares the one that is nearest to being broken by them."),
    *((f"after_loss_{what}_{end}", f"{which} end of {what} after a loss", "share",
       f"Of after_loss_{what} the {which} end of its 95 % interval, by batches of those requests, as slo_{what}_{end}. "
       "Nothing for fewer than 50.")
      for what in ("attainment", "margin") for end, which in (("low", "lower"), ("high", "upper"))),
    ("goodput_per_s", "goodput", "requests/s",
     "Good requests over the run's length, from slo.warmup_s on."),
    ("goodput_per_gpu_s", "goodput of a GPU", "requests/s", "The same over the GPUs."),
    ("session_attainment", "attainment of sessions", "share",
     "Of the sessions that began after slo.warmup_s, the share that ended with every request good."),
)  # fmt: skip
