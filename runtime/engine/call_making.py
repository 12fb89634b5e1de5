"""A call as a lane is asked for it: its keys, what it accepts, whose budget it uses. Pure."""

from dataclasses import dataclass
from typing import Any

from runtime.engine.call_context import CallContext, CallPlace
from runtime.model.call import ANY_AGE, Call
from runtime.model.call_options import CallOptions
from runtime.model.canonical_json import digest
from runtime.model.tool import ToolMetadata
from runtime.policy import freshness, identity


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedCall:
    """What an author asked for, once; its keys change with the credentials behind the tool."""

    context: CallContext
    metadata: ToolMetadata
    input: Any
    options: CallOptions
    place: CallPlace
    private: identity.PrivateCall | None

    def under(self, scope: str | None, inbox: str) -> Call:
        """The call under these credentials."""
        context, metadata = self.context, self.metadata
        shared, *older = (
            self._keys(scope, version, metadata.response_revision)
            for version in dict.fromkeys((metadata.action_version, *metadata.read_versions))
        )
        private = self.private
        is_shared = private is None
        # A private key is without the tool's versions: a replay finds what was paid though the tool has changed since.
        keys = shared if private is None else identity.private_keys(self._keys(scope, "", None), private)
        return Call(
            key=keys.receipt,
            org_id=context.org_id,
            run_id=context.run_id,
            tool=metadata.tool,
            input=self.input,
            idempotency_key=keys.item,
            inbox=inbox,
            integration_mode=context.integration_mode,
            accepts=freshness.accepts(context.refresh, self.options.stale_after_seconds)
            if is_shared
            else ANY_AGE,
            read_keys=tuple(one.receipt for one in older) if is_shared else (),
            shared_key=shared.receipt if private is not None and private.shares else None,
            auth_scope=scope,
            timeout_ms=self.options.timeout_ms,
            accounts=context.budget,
            page=self.options.page,
            node=self.place.node,
        )

    def _keys(self, scope: str | None, version: str, revision: str | None) -> identity.CallKeys:
        return identity.call_keys(
            org_id=self.context.org_id,
            tool=self.metadata.tool,
            input=self.input,
            auth_scope=scope,
            action_version=version,
            response_revision=revision,
            integration_mode=self.context.integration_mode,
        )


def asked_call(
    context: CallContext, metadata: ToolMetadata, input: Any, options: CallOptions, place: CallPlace
) -> AskedCall:
    """Counts the call at its place if no stored result answers it but its own."""
    return AskedCall(
        context=context,
        metadata=metadata,
        input=input,
        options=options,
        place=place,
        private=_private(context, metadata, input, options, place),
    )


def _private(
    context: CallContext, metadata: ToolMetadata, input: Any, options: CallOptions, place: CallPlace
) -> identity.PrivateCall | None:
    """Of a call that no stored result answers but its own: forced, or of a tool that is always fresh."""
    if not (options.force or options.is_private or metadata.always_fresh):
        return None
    page = () if options.page is None else (options.page.offset, options.page.page_size, options.page.limit)
    if page and options.query:
        return identity.PrivateCall(run_id="", place=("query", options.query, *page), n=0, shares=False)
    n = place.nth(f"{metadata.tool}:{digest(input)}{page or ''}")
    return identity.PrivateCall(run_id=context.run_id, place=(*place.parts, *page), n=n, shares=options.force)
