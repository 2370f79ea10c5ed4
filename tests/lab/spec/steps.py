"""Make steps of Trace.tla of the log of one run. See tests/lab/spec/log.py for the log, Trace.tla for the steps.

A process of the specification is one claim of a real process, with everything that follows from it: a real process
that claims again is another one, and one that takes over a lease is the one that had it. A step of a process is put
where the specification needs it: what a process sends is a step when it is sent, what it is told when the reply
arrives, what it releases just before a server does so. A process that was refused a renewal is told when it claims
another worker id: until then, threads of it may show ids that they made before. Other refusals change nothing.
"""

import itertools
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.lab.spec.log import Entry, ints

Step = dict[str, Any]
# steps after which the log shows the record of the worker id
RECORDED = ("granted", "renewed", "released")
# scripts that no process with a lease runs
ADMINISTRATION = ("create", "delete")
# replies of scripts that changed nothing
UNCHANGED = ("absent",)
# what is assumed of a request that another process sends
SHARED_TOKEN = "a request of another process is of the last that had the token"


class Unusable(Exception):
    """The log cannot be turned into steps."""


@dataclass
class Slot:
    """A process of the specification: one claim.

    Attributes:
        name: in the specification.
        owner, token: of the real process.
        worker: that it was granted; -1: none yet.
        state: claim, held or sealed.
        depth: how many renewals were answered since the claim.
        renewal_id, pending: as the real process has them.
        lanes: where its lanes begin.
        newest: the run whose answer is the newest on its way; 0: none is.
        asked: whether its present request is known in its own name; false in a copy.
        is_clone: whether it is a copy that was not heard of yet.
        last_ms: the last tick of each lane and of each real process that had this lease.
        refused: why its renewal was refused, "" if it was not: "copied", or "lost".
    """

    name: str
    owner: str
    token: str
    worker: int = -1
    state: str = "claim"
    depth: int = 0
    renewal_id: str = ""
    pending: str = ""
    lanes: list[int] = field(default_factory=list)
    newest: int = 0
    asked: bool = True
    is_clone: bool = False
    last_ms: dict[tuple[int, str], int] = field(default_factory=dict)
    refused: str = ""

    def is_free(self, lane: int, owner: str, ms: int) -> bool:
        """Return whether no other process that had this lease used this tick of *lane*, or a later one."""
        others = (last for (used, other), last in self.last_ms.items() if used == lane and other != owner)
        return all(last < ms for last in others)


@dataclass
class Call:
    """A request, and the slot that it belongs to."""

    entry: Entry
    slot: Slot | None
    depth: int = 0


class Answer(NamedTuple):
    """An answer that grants something, and the depth of the renewal; 0 for a claim."""

    reply: list[str]
    depth: int


@dataclass
class Steps:
    """Steps of one run, and what the specification has to know of it."""

    header: Entry
    steps: list[Step] = field(default_factory=list)
    slots: list[str] = field(default_factory=list)
    servers: list[str] = field(default_factory=list)
    # (process, depth) of the renewals that are served after their process has gone on
    late: set[tuple[str, int]] = field(default_factory=set)
    # processes that want no outage lane
    without: set[str] = field(default_factory=set)
    # how often SHARED_TOKEN was assumed
    shared_tokens: int = 0


class Converter:
    """Converter of one run."""

    def __init__(self, entries: list[Entry]) -> None:
        self._entries = entries
        self.out = Steps(entries[0])
        self._calls: dict[int, Call] = {}
        self._by_owner: dict[tuple[str, str], Slot] = {}
        # the leases that a process had of a worker id, the newest last
        self._of_worker: dict[tuple[str, int], list[Slot]] = {}
        self._incarnations: dict[str, int] = {}
        # ids of pools -> their numbers
        self._pools: dict[str, int] = {}
        # the states of pools in replies that arrived, at whatever process: a child knows what its parent does
        self._seen = {("", 0)}
        # runs after which a server is found later
        self._needed = {entry["data"] for entry in entries if entry["do"] == "found" and entry["data"]}
        # what runs granted, and the runs whose answers arrive; which state of the pool each showed
        self._answers: dict[int, Answer] = {}
        self._states: dict[int, tuple[str, int]] = {}
        # tokens of claims that a server may have granted; of a refused one nothing is heard again
        self._tokens = set(_tokens(entries))
        # tokens of claims that want no outage lane
        sent = (entry for entry in entries if entry["do"] == "send" and entry["script"] == "claim")
        self._without = {entry["token"] for entry in sent if not entry["wants_lane"]}
        # (first ms, sequence) of the ids that a process made, by worker id and lane
        self._made: dict[tuple[str, int, int], set[tuple[int, int]]] = {}
        self._arriving = {entry["run"] for entry in entries if entry["do"] == "reply"}
        # where a process does something for the last time
        self._last = {entry["process"]: number for number, entry in enumerate(entries) if "process" in entry}
        self._at = 0

    def convert(self) -> Steps:
        for number, entry in enumerate(self._entries):
            self._at = number
            getattr(self, f"_{entry['do']}")(entry)
        # only how the numbers of incarnations compare matters
        numbers = {number for step in self.out.steps for number in (step.get("no", 0), step.get("seen_no", 0))}
        ranks = {number: rank for rank, number in enumerate(sorted(numbers | {0}))}
        for step in self.out.steps:
            step |= {name: ranks[step[name]] for name in ("no", "seen_no") if name in step}
        set_times(self.out.header, self.out.steps)
        self.out.without = {slot.name for (_, token), slot in self._by_owner.items() if token in self._without}
        return self.out

    def _add(self, op: str, **fields: Any) -> None:
        self.out.steps.append({"op": op} | fields)

    def _begin(self, entry: Entry) -> None:
        pass

    def _end(self, entry: Entry) -> None:
        pass

    # --- processes ---------------------------------------------------------------------------------

    def _new_slot(self, owner: str, token: str) -> Slot:
        slot = Slot(f"c{len(self.out.slots) + 1}", owner, token)
        self.out.slots.append(slot.name)
        self._by_owner[owner, token] = slot
        return slot

    def _slot_of(self, entry: Entry) -> Slot | None:
        """Return the slot of a request: the own one, or that of a dead process, if another releases what it had."""
        token, script = entry["token"], entry["script"]
        slot = self._by_owner.get((entry["process"], token))
        if slot is not None:
            return slot
        others = [slot for slot in self._by_owner.values() if slot.token == token]
        if script == "claim":
            return self._claim_taken_over(others, entry) or self._child_of_claim(others, entry)
        if script == "renew":
            return None
        # a release of another process: that of a killed one (reclaimed), or of one that ended and could not release
        return self._one_of(others, entry["pending"], entry["renewal_id"])

    def _claim_taken_over(self, slots: list[Slot], entry: Entry) -> Slot | None:
        """Return the slot of a process that was killed as it was answered, and whose claim another process repeats.

        That is the same process of the specification, which has not got its answer.
        """
        steps = self.out.steps
        for slot in reversed(slots):
            delivered = self._delivered(slot.name)
            is_new = slot.state == "held" and not slot.last_ms and not slot.pending and len(delivered) == 1
            # else it is a clone of the process that was killed
            if is_new and self._last[slot.owner] < self._at:
                del steps[delivered[0]]
                self._of_worker[slot.owner, slot.worker].remove(slot)
                slot.owner, slot.state, slot.worker = entry["process"], "claim", -1
                self._by_owner[slot.owner, slot.token] = slot
                return slot
        return None

    def _child_of_claim(self, slots: list[Slot], entry: Entry) -> Slot | None:
        """Return a new slot; that of a child of a fork if the claim is one that another process has under way."""
        token = entry["token"]
        if token not in self._tokens:
            return None
        under_way = [slot for slot in slots if slot.state == "claim"]
        slot = self._new_slot(entry["process"], token)
        if under_way:
            self._add("twin", p=under_way[-1].name, q=slot.name)
            slot.asked = False
        return slot

    def _one_of(self, slots: list[Slot], *ids: str) -> Slot | None:
        """Return the slot that has the first of the renewal *ids* that any has; if none, or several, the last one."""
        exact: list[Slot] = []
        for each in ids:
            exact = exact or [slot for slot in slots if each and each in (slot.renewal_id, slot.pending)]
        if len(exact) != 1 and len(slots) > 1:
            self.out.shared_tokens += 1
        found = exact or slots
        return found[-1] if found else None

    def _delivered(self, name: str) -> list[int]:
        """Return where replies were delivered to a process."""
        return [i for i, step in enumerate(self.out.steps) if step["op"] == "deliver" and step["p"] == name]

    def _is_before_reply(self, slot: Slot, entry: Entry) -> bool:
        """Return whether a request shows *slot* as it was before its newest renewal was answered."""
        return slot.state == "held" and not slot.pending and entry["pending"] == slot.renewal_id != ""

    def _go_back(self, slot: Slot, entry: Entry) -> None:
        """Let *slot* be as a request shows it, before the newest renewal was answered."""
        slot.depth, slot.renewal_id, slot.pending = slot.depth - 1, entry["renewal_id"], entry["pending"]

    def _tell(self, owner: str) -> None:
        """Tell the processes that *owner* was, and whose renewal was refused."""
        for slot in self._by_owner.values():
            if slot.owner == owner and slot.refused and slot.state == "held":
                self._add("told", p=slot.name, kind=slot.refused)
                slot.state = "lost"

    def _send(self, entry: Entry) -> None:
        call = self._calls[entry["call"]] = Call(entry, None)
        script = entry["script"]
        self._check_seen(entry)
        if script in ADMINISTRATION:
            return
        if script == "claim" and (entry["process"], entry["token"]) not in self._by_owner:
            self._tell(entry["process"])
        before = len(self.out.slots)
        slot = call.slot = self._slot_of(entry)
        if slot is None:
            return
        if script == "claim":
            if len(self.out.slots) > before and slot.asked:
                self._add("claim", p=slot.name)
            elif not slot.asked:
                self._repeat(slot)
        elif script == "renew":
            if slot.is_clone and self._is_before_reply(slot, entry):
                self._clone_earlier(slot, entry)
            slot.is_clone = False
            if entry["pending"] != slot.pending:
                self._renew(slot, entry)
                slot.pending, slot.asked = entry["pending"], True
            elif not slot.asked:
                self._repeat(slot)
            call.depth = slot.depth + 1

    def _check_seen(self, entry: Entry) -> None:
        """Add a step that no specification allows if a request shows a state of the pool that no reply had."""
        seen = entry["seen_incarnation"], entry["seen_version"]
        if seen not in self._seen:
            self._add("saw", incarnation=seen[0], version=seen[1])

    def _renew(self, slot: Slot, entry: Entry) -> None:
        """Let the process ask for a renewal, with all that it says of its lease."""
        own = entry["renewal_id"] == slot.renewal_id and entry["lanes_ms"] == slot.lanes
        self._add(
            "renew",
            p=slot.name,
            w=entry["worker"],
            until=entry["until_ms"],
            out=entry["outage_ms"],
            lanes=entry["lanes_ms"],
            inc=self._number_of(entry["incarnation"]),
            own=int(own),
        )

    def _number_of(self, incarnation: str) -> int:
        """Return the number of an incarnation; 0 without one."""
        return self._incarnations.setdefault(incarnation, len(self._incarnations) + 1) if incarnation else 0

    def _repeat(self, slot: Slot) -> None:
        self._add("repeat", p=slot.name)
        slot.asked = True

    def _reply(self, entry: Entry) -> None:
        call = self._calls[entry["call"]]
        slot, run = call.slot, entry["run"]
        answer = self._answers.get(run)
        if (state := self._states.get(run)) is not None:
            self._seen.add(state)
        if slot is None or answer is None or not self._awaits(slot, answer):
            return
        if answer.reply[0] == "lost":
            slot.refused = _kind(answer.reply)
            return
        if slot.newest != run:
            self._add("unhold", p=slot.name)
        self._add("deliver", p=slot.name)
        slot.state, slot.depth, slot.pending, slot.newest = "held", answer.depth, "", 0
        if answer.reply[0] == "granted":
            slot.worker, slot.renewal_id = int(answer.reply[6]), answer.reply[9]
            slot.lanes = ints(answer.reply[8])
            self._of_worker.setdefault((slot.owner, slot.worker), []).append(slot)
        else:
            slot.renewal_id = call.entry["pending"]
            if self.out.header["outage_ms"]:
                # a lane that it does not have yet may begin later after a loss
                slot.lanes = [*slot.lanes[:-1], max(slot.lanes[-1], int(answer.reply[8]))]

    def _awaits(self, slot: Slot, answer: Answer) -> bool:
        """Return whether the process waits for that answer: it has none to this claim, or to this renewal."""
        if answer.reply[0] == "granted":
            return slot.state == "claim"
        return slot.state == "held" and answer.depth == slot.depth + 1

    def _use(self, entry: Entry) -> None:
        owner, worker, lane = entry["process"], entry["worker"], entry["lane"]
        slots = self._of_worker.get((owner, worker), [])
        for ms, *sequences in entry["visits"]:
            # an id may be shown when the next lease of the same worker id is there already
            slot = next((slot for slot in reversed(slots) if slot.lanes[lane] <= ms), None)
            if slot is not None and not slot.is_free(lane, owner, ms):
                slot = None
            # the slot is nobody's: no step of the specification
            name = slot.name if slot is not None else self._nobody()
            before = ""
            if slot is not None and not entry["in_order"]:
                # made before the generator was sealed, or the process was told, and shown later
                before = {"sealed": "release", "lost": "told" * (lane < self.out.header["lanes"])}.get(slot.state, "")
            if slot is not None:
                slot.last_ms[lane, owner] = max(ms, slot.last_ms.get((lane, owner), 0))
            step = {"op": "use", "p": name, "w": worker, "l": lane, "lo": ms, "hi": ms}
            step["order"] = self._order_of((owner, worker, lane), ms, sequences, in_order=entry["in_order"])
            newest = self.out.steps[-1]
            if not before and _follows(newest, step):
                newest["hi"] = ms
            else:
                self._insert(step, before)

    def _order_of(self, lane: tuple[str, int, int], ms: int, sequences: list[int], *, in_order: bool) -> str:
        """Return how these ids of one tick must stand to those of the lane before.

        "behind": in a later tick, since one of them was made before; "grows": in no earlier one; "any": the log may
        show them late.
        """
        made = self._made.setdefault(lane, set())
        before = len(made)
        made.update((ms, sequence) for sequence in sequences)
        if len(made) < before + len(sequences):
            return "behind"
        return "grows" if in_order else "any"

    def _insert(self, step: Step, before: str) -> None:
        """Add a step: before that *before* of the same process, if there is one."""
        steps = self.out.steps
        place = (i for i, old in enumerate(steps) if old["op"] == before and old["p"] == step["p"])
        steps.insert(next(place, len(steps)), step)

    def _nobody(self) -> str:
        if "nobody" not in self.out.slots:
            self.out.slots.append("nobody")
        return "nobody"

    def _clone(self, entry: Entry) -> None:
        if entry["token"]:
            slot = self._by_owner[entry["process"], entry["token"]]
            copy = self._new_slot(entry["child"], entry["token"])
            copy.asked = False
            steps = self.out.steps
            place = next(i for i, step in enumerate(steps) if step["op"] == "claim" and step["p"] == slot.name)
            steps.insert(place + 1, {"op": "copy", "p": slot.name, "q": copy.name})
            return
        for (owner, token), slot in list(self._by_owner.items()):
            if owner != entry["process"] or slot.state == "sealed":
                continue
            copy = self._new_slot(entry["child"], token)
            copy.worker, copy.state, copy.depth = slot.worker, slot.state, slot.depth
            copy.renewal_id, copy.pending, copy.is_clone = slot.renewal_id, slot.pending, True
            copy.asked = slot.state == "held" and not slot.pending
            self._add("copy", p=slot.name, q=copy.name)
            if slot.worker >= 0:
                copy.lanes = slot.lanes
                self._of_worker.setdefault((entry["child"], slot.worker), []).append(copy)

    def _clone_earlier(self, slot: Slot, entry: Entry) -> None:
        """Put the making of a clone before the reply that arrived just then, and that the clone does not know."""
        steps = self.out.steps
        made = next(i for i, step in enumerate(steps) if step["op"] == "copy" and step["q"] == slot.name)
        arrived = [i for i in self._delivered(steps[made]["p"]) if i < made]
        if not arrived:
            # no reply explains it, so the specification has to refuse what the clone sends
            return
        steps.insert(arrived[-1], steps.pop(made))
        self._go_back(slot, entry)
        slot.asked = False

    def _take(self, entry: Entry) -> None:
        """Go on with the lease of a process that ended, as the same process of the specification."""
        owner, token = entry["process"], entry["token"]
        slots = [slot for slot in self._by_owner.values() if slot.token == token]
        slot = self._one_of(slots, entry["renewal_id"])
        if slot is None:
            raise Unusable("a lease that is taken over, and that no claim in the log got")
        self._add("take", p=slot.name, until=entry["until_ms"], out=entry["outage_ms"], low=entry["used_ms"])
        self._by_owner[owner, token] = slot
        self._of_worker.setdefault((owner, slot.worker), []).append(slot)

    def _lift(self, entry: Entry) -> None:
        outage = [entry["outage_until_ms"]] * (self.out.header["outage_ms"] > 0)
        self._add("lift", t=[entry["until_ms"]] * self.out.header["lanes"] + outage)

    # --- servers -----------------------------------------------------------------------------------

    def _server(self, name: str) -> str:
        if name not in self.out.servers:
            self.out.servers.append(name)
        return name

    def _found(self, entry: Entry) -> None:
        data = entry["data"]
        self._add("found", s=self._server(entry["server"]), k=-1 if data is None else data, id=entry["identity"])

    def _run(self, entry: Entry) -> None:
        call, reply = self._calls[entry["call"]], entry["reply"]
        before = len(self.out.steps)
        self._serve(self._server(entry["server"]), call, entry["run"], reply)
        if len(self.out.steps) > before and "R" in (step := self.out.steps[-1]):
            self._states[entry["run"]] = reply[2], int(reply[3])
            if (record := entry.get("record")) is not None and step["op"] in RECORDED:
                step |= {"begin": record["lanes_ms"], "end": record["end_ms"]}
                step |= {"ends": record["until_ms"], "ends_out": record["outage_ms"]}
                step["before"] = int(record["before"] != "")
            if (pool := entry.get("pool")) is not None:
                step |= {"lost": pool["lost_at_ms"], "start": pool["start_ms"], "new": int(pool["is_new"])}
                step |= {"end_ms": pool["end_ms"], "over": pool["over"]}
        if entry["run"] in self._needed:
            self._add("keep", s=entry["server"], k=entry["run"])

    def _serve(self, server: str, call: Call, run: int, reply: list[str]) -> None:
        status = reply[0]
        if len(reply) < 6:
            # it changed nothing, not even what a loss changes
            return
        slot = call.slot
        common = self._common(server, call.entry, reply)
        name = slot.name if slot is not None else self._nobody()
        if status in ("granted", "renewed", "lost") and slot is not None:
            answer = self._answers[run] = Answer(reply, call.depth)
            if self._awaits(slot, answer):
                if slot.newest in self._arriving:
                    self._add("hold", p=slot.name)
                slot.newest = run
            elif status != "granted":
                self.out.late.add((slot.name, call.depth))
        if status == "granted":
            common |= {"until": int(reply[7]), "out": int(reply[10]), "lanes": ints(reply[8])}
            self._add("granted", p=name, w=int(reply[6]), **common)
        elif status == "renewed":
            common |= {"until": int(reply[6]), "out": int(reply[9]), "from": int(reply[8])}
            self._add("renewed", p=name, w=call.entry["worker"], dep=call.depth, **common)
        elif status == "lost" and slot is not None:
            self._add("lost", p=name, w=call.entry["worker"], dep=call.depth, kind=_kind(reply), **common)
        elif status == "released":
            if slot is not None:
                self._release(slot, call)
            self._add("released", p=name, w=call.entry["worker"], **common)
        elif status == "created":
            self._add("created", **common)
        elif status == "ends":
            self._add("ends", T=int(reply[6]), **common)
        elif status not in UNCHANGED:
            self._add("refused", **common)

    def _common(self, server: str, request: Entry, reply: list[str]) -> dict[str, Any]:
        """Return what every script shows: the pool after it, and what its caller had seen of the pool."""
        held = request.get("incarnation", "")
        return {
            "s": server,
            "R": int(reply[1]),
            "c": request["caller_ms"],
            "inc": self._number_of(reply[2]),
            "no": _number_in(reply[2]),
            "ver": int(reply[3]),
            "poolid": self._pool_of(reply[2]),
            "floor": int(reply[4]),
            "pid": self._pool_of(request["seen_incarnation"] or held),
            "held_log": self._number_of(held),
            "held_until": request.get("until_ms", 0),
            "held_out": request.get("outage_ms", 0),
            "seen_log": self._number_of(request["seen_incarnation"]),
            "seen_no": _number_in(request["seen_incarnation"]),
            "seen_ver": request["seen_version"],
        }

    def _pool_of(self, incarnation: str) -> int:
        """Return the number of the pool that has this incarnation; 0 without one."""
        name = incarnation.partition("-")[2][:8]
        return self._pools.setdefault(name, len(self._pools) + 1) if name else 0

    def _release(self, slot: Slot, call: Call) -> None:
        """Let the process release what it had, just before a server does so."""
        if slot.state == "sealed":
            return
        entry = call.entry
        if entry["process"] != slot.owner and self._is_before_reply(slot, entry):
            # killed when the reply had arrived, before it was recorded
            del self.out.steps[self._delivered(slot.name)[-1]]
            self._go_back(slot, entry)
        lanes = self.out.header["lanes"] + (self.out.header["outage_ms"] > 0)
        self._add(
            "release",
            p=slot.name,
            w=entry["worker"],
            until=entry["until_ms"],
            out=entry["outage_ms"],
            # unknown: all of them may have been opened
            opened=[int(digit) for digit in entry["opened"] or "1" * lanes],
            reclaimed=int(entry["reclaimed"]),
            pending=int(entry["pending"] != ""),
        )
        slot.state = "sealed"


def _kind(reply: list[str]) -> str:
    """Return what a refused process is told: "copied" if the outage lane is not its own either."""
    return "lost" if reply[7] == "1" else "copied"


def _number_in(incarnation: str) -> int:
    """Return the number of an incarnation, which is higher than that of the one before; 0 without one."""
    return int(incarnation.partition("-")[0] or 0)


def _follows(step: Step, other: Step) -> bool:
    """Return whether one step can have both: *other* is of the same lane, and not behind *step*."""
    same = all(step.get(name) == other[name] for name in ("op", "p", "w", "l", "order"))
    return same and bool(step["hi"] <= other["lo"]) and other["order"] != "behind"


def _tokens(entries: list[Entry]) -> Iterator[str]:
    calls = {entry["call"]: entry.get("token", "") for entry in entries if entry["do"] == "send"}
    for entry in entries:
        match entry["do"]:
            case "run" if entry["reply"][0] == "granted":
                yield calls[entry["call"]]
            case "send" if entry["script"] in ("renew", "release"):
                yield entry["token"]


def steps_of(entries: list[Entry]) -> Steps:
    """Return the steps of one run. Raises Unusable."""
    return Converter(entries).convert()


# --- times: small enough for TLC, which counts to 2^31, without a change to any comparison ---------------------

# fields of steps that are times
TIMES = {
    *("R", "c", "T", "floor", "until", "out", "held_until", "held_out", "from", "lanes", "low", "lo", "hi", "t"),
    *("begin", "end", "ends", "ends_out", "lost", "start", "end_ms"),
}


def set_times(header: Entry, steps: Sequence[Step]) -> None:
    """Map all times: the distance between two is kept, unless no sum of the specification can bridge it.

    The specification compares times after it has added constants of the pool to them, all of them together at
    most. So a distance that is longer may be any other that is longer, too: every comparison comes out the same.
    """
    slack, lead = header["failover_slack_ms"], header["max_clock_lead_ms"]
    reach = max(header["ttl_ms"], header["outage_ms"]) + lead + slack
    points = sorted({time for step in steps for time in _times(step)} | {0})
    mapped = [0]
    for before, after in itertools.pairwise(points):
        mapped.append(mapped[-1] + min(after - before, reach + 1))
    for step in steps:
        for name in TIMES & step.keys():
            value = step[name]
            step[name] = (
                [mapped[bisect_left(points, item)] for item in value]
                if isinstance(value, list)
                else mapped[bisect_left(points, value)]
            )


def _times(step: Step) -> list[int]:
    times: list[int] = []
    for name in TIMES & step.keys():
        value = step[name]
        times += value if isinstance(value, list) else [value]
    return times
