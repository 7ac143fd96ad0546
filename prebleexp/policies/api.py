"""All that a policy of one's own is written with, under one name: `from prebleexp.policies.api import …`."""

from __future__ import annotations

from prebleexp.policies.base import HOLD as HOLD
from prebleexp.policies.base import REFUSE as REFUSE
from prebleexp.policies.base import Policy as Policy
from prebleexp.policies.base import tuned as tuned
from prebleexp.policies.decisions import Decisions as Decisions
from prebleexp.policies.prefix_index import PrefixIndex as PrefixIndex
from prebleexp.policies.prefix_index import forget as forget
from prebleexp.policies.prefix_index import forget_all as forget_all
from prebleexp.policies.prefix_index import insert as insert
from prebleexp.policies.prefix_index import longest_match as longest_match
from prebleexp.policies.prefix_index import matches as matches
from prebleexp.policies.prefix_index import prefix_index as prefix_index
from prebleexp.policies.prefix_index import store as store
from prebleexp.sim.compiled import compiled as compiled
from prebleexp.sim.cost import decode_s as decode_s
from prebleexp.sim.cost import prefill_s as prefill_s
from prebleexp.sim.cost import request_ms as request_ms
from prebleexp.sim.cost import step_s as step_s
from prebleexp.sim.draws import below as below
from prebleexp.sim.draws import generator as generator
from prebleexp.sim.records import ENTRIES as ENTRIES
from prebleexp.sim.records import GPUS as GPUS
from prebleexp.sim.records import NODES as NODES
from prebleexp.sim.records import SEGMENTS as SEGMENTS
from prebleexp.sim.records import View as View
from prebleexp.sim.types import Setup as Setup
from prebleexp.sim.types import Steps as Steps
from prebleexp.sim.types import records as records
