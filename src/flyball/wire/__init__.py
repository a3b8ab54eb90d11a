"""Wires: conversations as OpenAI and Anthropic write them, read into messages and written back.

What is read and written in the same shape comes back as it was (a missing `content` beside calls as None, a missing
`type` of a call as "function"; arguments that a server of OpenAI's shape gave as a dict as text; neighbouring messages
of results as one, which is how Anthropic wants them). What only one provider can say is kept in the metadata of the
message, and written in that provider's shape only, where its message shows whose it is:

    {"wire": {"shape":   "openai" or "anthropic", where the provider's message shows whose it is
              "message": its further keys (name, refusal, the role "developer"), on the first of its envelopes
              "part":    the further keys of this part, block or call (cache_control); {} for a text alone in a list}}

Crossing from one provider to the other keeps order, texts, call ids, names, arguments and pairs. It cannot keep:

    to OpenAI      text between or behind the calls of one message (it goes before them); `is_error` of a result
                   and what is in it beside text; which user text came along with results
    to Anthropic   the place of a system text (there is one, on top); the name on a result; blank texts
    both           private reasoning, left out; parts other than text and images: a line says what was left out
"""

from .reader import normalize
from .writer import to_anthropic, to_openai

__all__ = ["normalize", "to_anthropic", "to_openai"]
