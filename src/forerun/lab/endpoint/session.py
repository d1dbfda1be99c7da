"""A server that was got to know, and one unit of a run against it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from forerun.core.errors import LoadError
from forerun.lab.endpoint.client import Server
from forerun.lab.endpoint.faults import Fault, shown
from forerun.lab.endpoint.idle import Watch
from forerun.lab.endpoint.load import Block, Job, run_block
from forerun.lab.endpoint.metrics import Counts, difference, silence
from forerun.lab.endpoint.plan import Arm, Talk, mark, order
from forerun.lab.endpoint.request import PATHS, agree, body
from forerun.lab.endpoint.setup import Setup, Told

Recount = Callable[[str], int]
"""Tokens of a text by a tokenizer of ours, for the cross-check."""


class Session:
    """A server, how it is asked, and the arms."""

    def __init__(self, setup: Setup, server: Server, told: Told, recount: Recount | None) -> None:
        self.setup = setup
        self.server = server
        self.told = told
        forms = told.forms
        first = setup.models[0]
        self.arms = [Arm(first, forms[first]), Arm(first, forms[first], again=True)]
        self.arms += [Arm(model, forms[model]) for model in setup.models[1:]]
        self._watch = Watch(server, setup.idle_s)
        self._recount = recount
        self._nonce = secrets.token_hex(8)  # so that a second run does not find the first one's prompts
        self._probes = 0

    @classmethod
    async def open(cls, setup: Setup, recount: Recount | None = None) -> Session:
        """Get to know the server; each model answers once, uncounted."""
        server = Server(setup.address, key=setup.key, timeout_s=setup.timeout_s)
        try:
            software, owner, listed = await _known(server)
            forms = {}
            for model in setup.models:
                try:
                    forms[model], _ = await agree(server, setup.ask, model, owner)
                except LoadError as error:
                    known = f" (the server lists: {', '.join(listed[:8])})" if listed and model not in listed else ""
                    raise LoadError(f"{error}{known}") from None
        except BaseException:
            await server.close()
            raise
        return cls(setup, server, Told(software, listed, forms), recount)

    async def unit(self, key: str, level: int, part: Sequence[Talk]) -> list[dict[str, Any]]:
        """All arms on one block of conversations, turn by turn."""
        await self.server.warm(level)
        done = []
        answers: dict[str, list[str]] = {talk.id: [] for talk in part}
        for turn in range(max(len(talk.turns) for talk in part)):
            going = [talk for talk in part if turn < len(talk.turns) and len(answers[talk.id]) == turn]
            if not going:
                break
            for place, arm in enumerate(order(self.arms, f"{key}/{turn}", self.setup.ask.seed)):
                jobs = [self._job(talk, turn, answers[talk.id], arm, f"{key}/{turn}") for talk in going]
                record, block = await self._turn(arm, level, jobs)
                done.append({"key": key, "level": level, "turn": turn, "place": place, **record})
                if arm is self.arms[0]:
                    heard = block
            for talk, result, text in zip(going, heard.records, heard.texts, strict=True):
                if result.reply is not None:
                    answers[talk.id].append(text)
        return done

    async def _turn(self, arm: Arm, level: int, jobs: Sequence[Job]) -> tuple[dict[str, Any], Block]:
        """One arm on one block: read its prompts if they shall be warm, wait for quiet, ask, count."""
        if self.setup.prefix == "warm":
            await self._read(arm, jobs)
        before = await self._watch.quiet(arm.model, lambda: self._probe(arm))
        block = await run_block(self.server, jobs, level, self.setup.patience)
        if all(record.reply is None for record in block.records):
            await self._still_there(arm)
        counts: Counts | None = None
        settled, why = True, silence(None, arm.model)
        if before.scrape is not None:  # counters are complete when the server is quiet again
            after = await self._watch.quiet(arm.model, lambda: self._probe(arm))
            counts = difference(before.scrape, after.scrape or {}, arm.model)
            settled, why = after.clean, silence(after.scrape, arm.model)
        record = {
            "arm": arm.name,
            "wall_s": round(block.wall_s, 5),
            "cpu_s": round(block.cpu_s, 5),
            "quiet": before.to_json(),
            "settled": settled,
            "counts": counts and asdict(counts),
            "silence": why,
            "records": [self._with_recount(r.to_json(), t) for r, t in zip(block.records, block.texts, strict=True)],
        }
        return record, block

    def _job(self, talk: Talk, turn: int, answers: Sequence[str], arm: Arm, key: str) -> Job:
        said = [self._marked(talk, key, arm), *talk.turns[1 : turn + 1]]
        messages = []
        for i, text in enumerate(said):
            messages.append({"role": "user", "content": text})
            if i < turn:
                messages.append({"role": "assistant", "content": answers[i]})
        asked = body(arm.form, self.setup.ask, arm.model, messages, talk.predictions[turn])
        return Job(talk.id, turn, PATHS[self.setup.ask.api], asked)

    def _marked(self, talk: Talk, key: str, arm: Arm) -> str:
        if self.setup.prefix == "warm":
            return talk.turns[0]
        return mark(self._nonce, key, talk.id, arm.again) + talk.turns[0]

    async def _read(self, arm: Arm, jobs: Sequence[Job]) -> None:
        """Let the server read the prompts, one token each."""
        short = [{**job.body, arm.form.limit: 1} for job in jobs]
        await asyncio.gather(*(self._quietly(job.path, asked) for job, asked in zip(jobs, short, strict=True)))

    async def _still_there(self, arm: Arm) -> None:
        """Where a whole block failed: LoadError unless the server answers a short question, so that it was the prompts'
        fault and the run can go on."""
        try:
            await self.server.stream(PATHS[self.setup.ask.api], self._short(arm))
        except Fault as fault:
            raise LoadError(f"{arm.model} does not answer any more: {fault}") from None

    async def _probe(self, arm: Arm) -> None:
        await self._quietly(PATHS[self.setup.ask.api], self._short(arm))

    def _short(self, arm: Arm) -> Mapping[str, object]:
        """A question of its own whose answer has one token."""
        self._probes += 1
        text = mark(self._nonce, "probe", self._probes) + "Hello"
        asked = body(arm.form, self.setup.ask, arm.model, [{"role": "user", "content": text}])
        return {**asked, arm.form.limit: 1}

    async def _quietly(self, path: str, asked: Mapping[str, object]) -> None:
        """A request whose answer does not matter; what ails the server shows in those that are measured."""
        with suppress(Fault):
            await self.server.stream(path, asked)

    def _with_recount(self, record: dict[str, Any], text: str) -> dict[str, Any]:
        if self._recount is not None and record["reply"] is not None:
            record["reply"]["retokenised"] = self._recount(text)
        return record


async def _known(server: Server) -> tuple[str, str, tuple[str, ...]]:
    """The server's software, its owner's name, and the models that it lists; LoadError if nobody answers."""
    try:
        page = await server.get(f"{server.address.base}/models")
    except Fault as fault:
        raise LoadError(str(fault)) from None
    if page.status in (401, 403):
        raise LoadError(f"{server.address.base} answers {page.status}: it wants a key; name its variable by --key-env")
    listed: list[Mapping[str, Any]] = []
    try:
        told = page.json()
        if isinstance(told, Mapping) and isinstance(told.get("data"), list):
            listed = [entry for entry in told["data"] if isinstance(entry, Mapping) and "id" in entry]
    except ValueError:
        pass  # models are asked by name all the same
    owner = str(listed[0].get("owned_by") or "") if listed else ""
    words = [word for word in (shown(page.headers.get("server", "")), shown(owner)) if word]
    return ", ".join(words) or "unknown", owner, tuple(shown(str(entry["id"])) for entry in listed)
