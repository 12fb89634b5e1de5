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
| inbox:{session}     | list   | answer messages (runtime/model/answer_message)    | inbox_ttl_s after a push     |

Scripts build lease keys from receipt keys (hex, so lists of them are joined by commas), and session and batch keys
from stored values: no Redis Cluster.
"""

EPOCH = "leases:epoch"
GRACE = "leases:grace"
BATCHES = "batches"
DISPATCH_EPOCH = "dispatch:epoch"


def session(session_id: str) -> str:
    return f"session:{session_id}"


def batch(batch_id: str) -> str:
    return f"batch:{batch_id}"


def inbox(session_id: str) -> str:
    return f"inbox:{session_id}"
