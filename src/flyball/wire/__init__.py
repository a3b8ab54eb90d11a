"""Conversion of conversations between messages and the formats of OpenAI and Anthropic.

A conversation that is read and written in the same format is unchanged, with these exceptions: a missing `content`
beside calls becomes None, a missing `type` of a call becomes "function", arguments that an OpenAI-like server sent as a
dict become text, and neighbouring result messages become one, as Anthropic requires.

Keys that only one provider knows are kept in the metadata of the message, and written only in that provider's format:

    {"wire": {"shape":   "openai" or "anthropic", if the provider's message shows which
              "message": its other keys (name, refusal, the role "developer"), on the first of its messages
              "part":    the other keys of this part, block or call (cache_control); {} for a text alone in a list}}

A conversion from one provider to the other keeps order, texts, call ids, names, arguments and pairs. It loses:

    to OpenAI      the place of text between or after the calls of one message (it moves before them); `is_error` of a
                   result and its parts other than text; which user text came in the message of the results
    to Anthropic   the place of a system text (there is only one, at the top); the name on a result; blank texts
    both           private reasoning, which is dropped; parts other than text and images: a line names what was dropped
"""

from .reader import normalize
from .writer import to_anthropic, to_openai

__all__ = ["normalize", "to_anthropic", "to_openai"]
