"""Programs on the clients of httpx, openai 2 and anthropic 1, through a transport in their own process."""

import runpy
import sys
from functools import partial
from pathlib import Path

import anthropic
import openai

import flyball.gateway
from flyball import Limits

TURNS = 4
library, variant = sys.argv[1:]
with flyball.gateway.transport(Limits(turns=TURNS)) as governed:
    openai.OpenAI = partial(openai.OpenAI, http_client=governed.http_client(openai.DefaultHttpxClient))
    anthropic.Anthropic = partial(anthropic.Anthropic, http_client=governed.http_client(anthropic.DefaultHttpxClient))
    sys.argv[1:] = [variant]
    program = Path(__file__).parents[1] / "programs" / f"{library}_agent.py"
    runpy.run_path(str(program), run_name="__main__")
found = governed.result.stop.value, governed.result.turns, governed.result.requests
sys.exit(0 if found == ("budget", TURNS, TURNS + 1) else f"not governed by the transport: {found}")
