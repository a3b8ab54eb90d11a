"""Rules: what is to happen when; here are the conditions and templates that they are written in."""
