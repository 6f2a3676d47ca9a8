# SPDX-License-Identifier: Apache-2.0
"""Language models: answers, sessions, capsules."""
from __future__ import annotations

import asyncio
import ctypes
import enum
import json
import os
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, overload

from . import _library as c
from ._errors import NotReady

_GREEDY, _CONTINUE, _READ_ONLY, _IGNORE_STOPS = 1, 2, 4, 8
_GIVEN = {"temperature": 1, "top_p": 2, "min_p": 4, "top_k": 8, "repetition_penalty": 16, "presence_penalty": 32,
          "frequency_penalty": 64, "seed": 128}
_SLICE_MS = 200  # between two looks for Ctrl-C, or for a task that was cancelled

Messages = Sequence[Mapping[str, Any]]


class Kind(enum.IntEnum):
    TEXT = 0
    REASONING = 1
    CALL_BEGIN = 2
    CALL_ARGUMENTS = 3
    CALL_END = 4
    TOKEN = 5
    END = 6


@dataclass(frozen=True)
class Event:
    """A piece of an answer. `token` is the last one that is part of what was given so far."""
    kind: Kind
    text: str
    call: int
    token: int
    log_probability: float


@dataclass(frozen=True)
class Result:
    """How an answer ended: "length", "stop", "context", "cancelled" or "deadline"."""
    finish: str
    prompt_tokens: int
    reused_tokens: int
    new_tokens: int
    seed: int
    queue_seconds: float
    prefill_seconds: float
    decode_seconds: float
    stop_text: str | None


@dataclass
class ToolCall:
    name: str
    arguments: str = ""  # one JSON object


@dataclass
class Answer:
    """The message that a conversation was answered with."""
    content: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)
    result: Result | None = None

    def message(self) -> dict[str, Any]:
        """As the next request's `messages` take it."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.tool_calls:
            message["tool_calls"] = [{"type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                                     for call in self.tool_calls]
        return message


_FINISH = ("length", "stop", "context", "cancelled", "deadline")


class Generation(c.Handle):
    """An answer that is being written. Iterating gives its text, piece by piece, also with `async for`; events() gives
    reasoning and calls apart. Closing cancels it."""
    _close = "frt_generation_close"

    def __init__(self, handle: int):
        super().__init__(handle)
        self._ended = False
        self._reading = threading.RLock()  # texts of an event live until the next one, or the close

    def next_event(self, timeout: float | None = None) -> Event:
        """The next event, Kind.END at the end. NotReady after `timeout` seconds."""
        event = c.frt_generation_event()
        left = None if timeout is None else max(0, int(timeout * 1000))
        while True:
            wait = _SLICE_MS if left is None else min(left, _SLICE_MS)
            try:
                with self._reading:
                    c.call("frt_generation_next", self._handle, wait, ctypes.byref(event))
                    text = ctypes.string_at(event.text, event.bytes).decode() if event.bytes else ""
                break
            except NotReady:
                if left is not None:
                    left -= wait
                    if left <= 0:
                        raise
        self._ended = event.kind == Kind.END
        return Event(Kind(event.kind), text, event.call, event.token, event.log_probability)

    def events(self) -> Iterator[Event]:
        """All but the end."""
        while (event := self.next_event()).kind != Kind.END:
            yield event

    async def aevents(self) -> AsyncIterator[Event]:
        """The same without blocking the loop. A task that is cancelled cancels the answer."""
        try:
            while (event := await asyncio.to_thread(self.next_event)).kind != Kind.END:
                yield event
        finally:
            if not self._ended:
                self.cancel()

    def __iter__(self) -> Iterator[str]:
        return (event.text for event in self.events() if event.kind == Kind.TEXT and event.text)

    async def __aiter__(self) -> AsyncIterator[str]:
        async for event in self.aevents():
            if event.kind == Kind.TEXT and event.text:
                yield event.text

    def cancel(self) -> None:
        """Ends within one step, from any thread."""
        if self._handle is not None:
            c.library().frt_generation_cancel(self._handle)

    def result(self) -> Result:
        """NotReady before the end was read."""
        found = c.frt_generation_result()
        with self._reading:
            c.call("frt_generation_result_of", self._handle, ctypes.byref(found))
            stop_text = None if found.stop_text is None else c.text_of(found.stop_text)
        return Result(_FINISH[found.finish], found.prompt_tokens, found.reused_tokens, found.new_tokens, found.seed,
                      found.queue_seconds, found.prefill_seconds, found.decode_seconds,
                      stop_text)

    def close(self) -> None:
        """Waits for a thread that reads the answer; cancelling wakes it."""
        self.cancel()
        with self._reading:
            super().close()

    def answer(self) -> Answer:
        """Reads to the end."""
        answer = Answer()
        for event in self.events():
            _take(answer, event)
        answer.result = self.result()
        return answer

    async def aanswer(self) -> Answer:
        answer = Answer()
        async for event in self.aevents():
            _take(answer, event)
        answer.result = self.result()
        return answer


def _take(answer: Answer, event: Event) -> None:
    if event.kind == Kind.TEXT:
        answer.content += event.text
    elif event.kind == Kind.REASONING:
        answer.reasoning += event.text
    elif event.kind == Kind.CALL_BEGIN:
        answer.tool_calls.append(ToolCall(event.text))
    elif event.kind == Kind.CALL_ARGUMENTS:
        answer.tool_calls[-1].arguments += event.text


def _begin(lm: int | None, session: int | None, flags: int, prompt: str | Sequence[int] | None, *,
           messages: Messages | None = None, tools: Sequence[Mapping[str, Any]] | None = None,
           chat_options: Mapping[str, Any] | None = None, max_tokens: int = 256, greedy: bool = False,
           stop: str | Sequence[str] = (), stop_ids: Sequence[int] = (), ignore_stops: bool = False, priority: int = 0,
           deadline: float = 0, **sampling: float | int | None) -> Generation:
    request = c.frt_generate_request(flags=flags, max_tokens=max_tokens, priority=priority,
                                     deadline_ms=int(deadline * 1000))
    if max_tokens == 0:
        request.flags |= _READ_ONLY
    if greedy:
        request.flags |= _GREEDY
    if ignore_stops:
        request.flags |= _IGNORE_STOPS
    for name, value in sampling.items():
        if name not in _GIVEN:
            raise TypeError(f"generate() got an unexpected argument '{name}'")
        if value is not None:
            request.sampling.given |= _GIVEN[name]
            setattr(request.sampling, name, value)
    if isinstance(prompt, str):
        encoded = prompt.encode()
        request.prompt, request.prompt_bytes = encoded, len(encoded)
    elif prompt is not None:
        request.prompt_ids, request.prompt_id_count = (ctypes.c_int32 * len(prompt))(*prompt), len(prompt)
    for name, structure in (("messages", messages), ("tools", tools), ("chat_options", chat_options)):
        if structure is not None:
            setattr(request, name, json.dumps(structure).encode())
    stops = [text.encode() for text in ([stop] if isinstance(stop, str) else stop)]
    request.stops, request.stop_count = c.texts(stops), len(stops)
    if stop_ids:
        request.stop_ids, request.stop_id_count = (ctypes.c_int32 * len(stop_ids))(*stop_ids), len(stop_ids)
    return Generation(c.opened("frt_lm_generate", lm, session, ctypes.byref(request)))


class Capsule(c.Handle):
    """A session's tokens and state, kept. Close it to give its memory back."""
    _close = "frt_lm_capsule_close"

    def __init__(self, model: LanguageModel, handle: int):
        super().__init__(handle)
        self._model = model

    def _facts(self) -> c.frt_capsule_facts:
        facts = c.frt_capsule_facts()
        c.call("frt_lm_capsule_facts", self._handle, ctypes.byref(facts))
        return facts

    @property
    def tokens(self) -> int:
        return int(self._facts().tokens)

    @property
    def bytes(self) -> int:
        return int(self._facts().bytes)

    @property
    def other_build(self) -> str | None:
        """How the build that computed it differs from this one, a line for each difference; None: it is this one."""
        differs = self._facts().other_build
        return differs.decode() if differs else None

    def restore(self, session: Session) -> None:
        """The session goes on from here, whatever it held."""
        c.call("frt_session_restore", session._handle, self._handle)

    def fork(self) -> Session:
        """A new session that goes on from here."""
        session = self._model.session()
        try:
            self.restore(session)
        except BaseException:
            session.close()
            raise
        return session

    def save(self, folder: str | os.PathLike[str], name: str, *, replace: bool = False) -> None:
        """Writes folder/name.capsule."""
        c.call("frt_lm_capsule_save", self._handle, c.path_bytes(folder), name.encode(), int(replace))

    def __enter__(self) -> Capsule:
        return self


class _Answering:
    """What models and sessions share."""

    def _start(self, prompt: str | Sequence[int] | None, **options: Any) -> Generation:
        raise NotImplementedError

    @overload
    def generate(self, prompt: str | Sequence[int], *, stream: Literal[False] = False, **options: Any) -> str: ...
    @overload
    def generate(self, prompt: str | Sequence[int], *, stream: Literal[True], **options: Any) -> Generation: ...

    def generate(self, prompt: str | Sequence[int], *, stream: bool = False, **options: Any) -> str | Generation:
        """Goes on after `prompt`, a text or ids. `stream`: an iterator over the text.

        Options: max_tokens (256; 0 reads the prompt only), greedy, temperature, top_p, min_p, top_k,
        repetition_penalty, presence_penalty, frequency_penalty, seed, stop (a text or several), stop_ids,
        ignore_stops, priority (higher first), deadline (seconds)."""
        generation = self._start(prompt, **options)
        if stream:
            return generation
        with generation:
            return "".join(generation)

    async def agenerate(self, prompt: str | Sequence[int], **options: Any) -> str:
        """As generate(), without blocking the event loop; `async for` over generate(stream=True) streams."""
        generation = self._start(prompt, **options)
        try:
            return "".join([piece async for piece in generation])
        finally:
            generation.close()

    @overload
    def chat(self, messages: Messages, *, stream: Literal[False] = False, **options: Any) -> Answer: ...
    @overload
    def chat(self, messages: Messages, *, stream: Literal[True], **options: Any) -> Generation: ...

    def chat(self, messages: Messages, *, stream: bool = False, **options: Any) -> Answer | Generation:
        """Answers a conversation: [{"role": "user", "content": "..."}, ...]. Options as generate(), and tools and
        chat_options, such as {"enable_thinking": False}."""
        generation = self._start(None, messages=messages, **options)
        if stream:
            return generation
        with generation:
            return generation.answer()

    async def achat(self, messages: Messages, **options: Any) -> Answer:
        generation = self._start(None, messages=messages, **options)
        try:
            return await generation.aanswer()
        finally:
            generation.close()


class Session(c.Handle, _Answering):
    """A text that goes on: generate() stands behind what it holds; chat() takes the whole conversation, and reads
    only what is new. One answer at a time."""
    _close = "frt_session_close"

    def __init__(self, model: LanguageModel, handle: int):
        super().__init__(handle)
        self._model = model

    def _start(self, prompt: str | Sequence[int] | None, **options: Any) -> Generation:
        if prompt is not None and len(prompt) == 0:
            prompt = None
        flags = _CONTINUE if "messages" not in options else 0
        return _begin(self._model._handle, self._handle, flags, prompt, **options)

    @property
    def tokens(self) -> list[int]:
        return c.ids_of("frt_session_tokens", self._handle)

    @property
    def text(self) -> str:
        return self._model.decode(self.tokens)

    @property
    def held(self) -> int:
        """Tokens whose state the device holds now."""
        held = ctypes.c_uint64()
        c.call("frt_session_held", self._handle, ctypes.byref(held))
        return held.value

    def fork(self) -> Session:
        """Another session that holds the same."""
        return Session(self._model, c.opened("frt_session_fork", self._handle))

    def snapshot(self, space: Literal["device", "host"] = "device") -> Capsule:
        """Keeps what it holds, in the device's memory or in the host's."""
        spaces = {"device": c.DEVICE_SPACE, "host": c.PINNED_SPACE}
        if space not in spaces:
            raise ValueError(f"a capsule is kept in 'device' or 'host', not in {space!r}")
        return Capsule(self._model, c.opened("frt_session_snapshot", self._handle, spaces[space]))

    def restore(self, capsule: Capsule) -> None:
        capsule.restore(self)

    def __enter__(self) -> Session:
        return self


class LanguageModel(c.Handle, _Answering):
    """A language model. Any number of threads and tasks may use it at once."""
    _close = "frt_lm_close"

    def __init__(self, handle: int):
        super().__init__(handle)
        facts = c.frt_lm_facts()
        c.call("frt_lm_facts_of", handle, ctypes.byref(facts))
        self.name = c.text_of(facts.name)
        self.vocabulary: int = facts.vocabulary
        self.context: int = facts.context
        self.slots: int = facts.slots
        self.has_tokenizer = bool(facts.has_tokenizer)
        self.has_chat = bool(facts.has_chat)

    def _start(self, prompt: str | Sequence[int] | None, **options: Any) -> Generation:
        return _begin(self._handle, None, 0, prompt, **options)

    def session(self) -> Session:
        return Session(self, c.opened("frt_session_open", self._handle))

    def load_capsule(self, folder: str | os.PathLike[str], name: str) -> Capsule:
        return Capsule(self, c.opened("frt_lm_capsule_load", self._handle, c.path_bytes(folder), name.encode()))

    def encode(self, text: str) -> list[int]:
        encoded = text.encode()
        return c.ids_of("frt_lm_encode", self._handle, encoded, len(encoded), 0)

    def decode(self, ids: Sequence[int]) -> str:
        return c.text_from("frt_lm_decode", self._handle, (ctypes.c_int32 * len(ids))(*ids) if ids else None, len(ids),
                           0)

    def render(self, messages: Messages, *, tools: Sequence[Mapping[str, Any]] | None = None,
               chat_options: Mapping[str, Any] | None = None) -> str:
        """The prompt of a conversation."""
        said = [None if value is None else json.dumps(value).encode() for value in (messages, tools, chat_options)]
        return c.text_from("frt_lm_render", self._handle, *said)

    def __enter__(self) -> LanguageModel:
        return self
