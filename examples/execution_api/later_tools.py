"""The declarations of tools whose answer comes later."""

from examples.execution_api.later import ask_person, slow_echo, slow_echo_status
from examples.execution_api.tools import Tool

LATER_TOOLS = (
    Tool(
        name="ask_person",
        provider="people",
        answer=ask_person,
        credits_per_item=0,
        is_batched=False,
        declares={"eventWait": True},
    ),
    Tool(
        name="slow_echo",
        provider="fakeprov",
        answer=slow_echo,
        credits_per_item=1,
        is_batched=False,
        declares={
            "asyncOperation": {"pollTool": "slow_echo_status", "intervalMs": 500, "resultPath": "value"}
        },
    ),
    Tool(
        name="slow_echo_status",
        provider="fakeprov",
        answer=slow_echo_status,
        credits_per_item=0,
        is_batched=False,
        always_fresh=True,
    ),
)
