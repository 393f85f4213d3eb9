"""The names of spans' attributes: all in one place, because many of them are not stable yet.

`gen_ai.*` and `mcp.*` are as in the semantic conventions for generative AI of November 2026, whose
status is Development.
"""

from __future__ import annotations

# Stable
ERROR_TYPE = "error.type"
HOST_NAME = "host.name"
SERVICE_NAME = "service.name"
SERVICE_VERSION = "service.version"

# In development
AGENT_ID = "gen_ai.agent.id"
AGENT_NAME = "gen_ai.agent.name"
CONVERSATION_ID = "gen_ai.conversation.id"
FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
MODEL = "gen_ai.request.model"
OPERATION = "gen_ai.operation.name"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
TOOL_CALL_ID = "gen_ai.tool.call.id"
TOOL_NAME = "gen_ai.tool.name"
CHAT, EXECUTE_TOOL, INVOKE_AGENT = "chat", "execute_tool", "invoke_agent"
MCP_METHOD = "mcp.method.name"
MCP_CALL = "tools/call"

# Boyd's own
DEPLOYMENT = "boyd.deployment"
AGENT = "boyd.agent"
ITERATION = "boyd.iteration"
TRIGGER = "boyd.trigger"
PHASE = "boyd.phase"
OBSERVER = "boyd.observer"
OBSERVATIONS = "boyd.observations"
BATCH = "boyd.batch"
ATTEMPT = "boyd.attempt"
RETRIES = "boyd.retries"
WORKER = "boyd.worker"
ACTION = "boyd.action"
GATE = "boyd.gate"
PREVENTED = "boyd.prevented"
EXECUTION = "boyd.execution"
STATE = "boyd.state"
VERDICT = "boyd.verdict"
CHECKS = "boyd.checks"
COMPENSATION = "boyd.compensation"
APPROVAL = "boyd.approval"
APPROVALS = "boyd.approvals"
RISK = "boyd.risk"
SEEN = "boyd.seen"
RUN = "boyd.run"
PRIORITY = "boyd.priority"
WAITED = "boyd.waited_ms"
PROCEDURE = "boyd.procedure"
STEP = "boyd.step"
INVESTIGATION = "boyd.investigation"
STEPS = "boyd.steps"
TOOL_CALLS = "boyd.tool_calls"
REQUESTS = "boyd.requests"
LINK = "boyd.link"

# Values of `error.type`
LEASE_LOST = "lease_lost"
FAILED = "failed"
