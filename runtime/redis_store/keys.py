"""Every Redis key of ours, its type and its time to live. State lives in a database of its own.

| key                 | type   | holds                                             | expires after                |
|---------------------|--------|---------------------------------------------------|------------------------------|
| session:{session}   | string | heartbeat of one process; its leases live with it | session_ttl_s, renewed       |
| lease:{receipt key} | hash   | session, fence, state, batch                      | lease_ttl_s (safety only)    |
| batch:{batch id}    | hash   | session, record (JSON), keys, fences              | batch_record_ttl_s           |
| batches             | zset   | ids of recorded batches by time in us             | batch_record_ttl_s, renewed  |
| leases:epoch        | string | ms of its creation and a random part              | lease_ttl_s, renewed         |
| leases:grace        | string | present: no claim is granted (data was lost)      | session_ttl_s                |
| dispatch:epoch      | string | random; tells published messages from lost ones   | lease_ttl_s, renewed         |
| events:{run}        | stream | what happens in a run (runtime/model/events)      | events_keep_s after the last |
| inbox:{session}     | list   | answer messages (runtime/model/answer_message)    | inbox_ttl_s after a push     |
| pace:{scope}        | hash   | a rate scope: rates, totals of what was sent      | pacing_keep_s and 2 windows  |
| pace:{scope}:window:{meter}, pace:{scope}:part:{meter} | list | what was sent in a window | the same     |
| pace:{scope}:line   | hash   | its tickets                                       | the same                     |
| pace:{scope}:slots  | hash   | its leased concurrency slots: since, session      | the same                     |
| pace:lost           | string | when data was lost last, in us                    | a day                        |
| lane:{scope}        | hash   | a scope's name, what it sent, what sessions have in line | a day |
| lanes               | zset   | names of those hashes by time in s                | a day, renewed               |

A rate scope's name is a digest of organisation and provider. Scripts build lease keys from receipt keys (hex, so
lists of them are joined by commas), and session and batch keys from stored values: no Redis Cluster.
"""

import hashlib

EPOCH = "leases:epoch"
GRACE = "leases:grace"
BATCHES = "batches"
DISPATCH_EPOCH = "dispatch:epoch"
PACE_LOST = "pace:lost"
LANES = "lanes"


def session(session_id: str) -> str:
    return f"session:{session_id}"


def batch(batch_id: str) -> str:
    return f"batch:{batch_id}"


def inbox(session_id: str) -> str:
    return f"inbox:{session_id}"


def events(run_id: str) -> str:
    return f"events:{run_id}"


def pace(org_id: str, provider: str) -> tuple[str, str, str]:
    """State, line and slots of a rate scope."""
    name = hashlib.sha256(f"{len(org_id)}:{org_id}{provider}".encode()).hexdigest()[:32]
    return f"pace:{name}", f"pace:{name}:line", f"pace:{name}:slots"


def lane(name: str, org_id: str, provider: str) -> str:
    """What a lane's share of one organisation and provider has sent."""
    parts = "".join(f"{len(part)}:{part}" for part in (name, org_id, provider))
    return f"lane:{hashlib.sha256(parts.encode()).hexdigest()[:32]}"
