"""What others don't answer: servers, addresses, secret stores, the local stack."""

from runtime.errors.base import PlaylaneError


class ServiceUnreachableError(PlaylaneError):
    code = "service_unreachable"


class ValueRefusedError(PlaylaneError):
    code = "value_refused"


class FetchFailedError(PlaylaneError):
    code = "fetch_failed"


class FetchTimeoutError(FetchFailedError):
    code = "fetch_timeout"


class EgressRefusedError(FetchFailedError):
    code = "egress_refused"


class SecretUnavailableError(PlaylaneError):
    code = "secret_unavailable"


class SecretSilentError(SecretUnavailableError):
    code = "secret_silent"


class StackError(PlaylaneError):
    code = "stack"


class ServersMissingError(StackError):
    code = "servers_missing"


class ChildNotReadyError(StackError):
    code = "child_not_ready"


class StackStoppedError(StackError):
    code = "stack_stopped"
