"""Full assertion messages for the auditor of the chaos tests: see audit.py."""

import pytest

pytest.register_assert_rewrite("tests.loop.audit", "tests.loop.audit_result", "tests.loop.audit_tree")
