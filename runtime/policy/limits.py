"""Every bound of the system with its value and unit; the one place to change one.

A deployment overrides them through settings (`PLAYLANE_LIMITS`).
"""

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    # sessions, claims, sweeps
    session_ttl_s: float = 30.0
    heartbeat_s: float = 10.0
    sweep_s: float = 5.0
    loop_stall_exit_s: float = 60.0
    loop_stall_warn_s: float = 2.0
    sigterm_grace_s: float = 30.0
    end_tasks_round_s: float = 0.05
    end_tasks_rounds: int = 100
    ready_late_s: float = 5.0
    reading_beat_s: float = 1.0
    worker_thread_end_s: float = 5.0
    consumer_stall_exit_s: float = 30.0

    # pages and slices
    slice_rows: int = 100
    slices_per_page: int = 5
    cheap_slices: tuple[tuple[float, int], ...] = (
        (1_500.0, 500),
        (400.0, 250),
    )  # (rows/s so far, rows a slice)
    pages_in_flight: int = 4
    slices_per_row_process: int = 32
    slice_turns_from: int = 8  # slices that a process holds, from which on runs take turns for its places
    slice_turns_look_s: float = 0.25
    slice_turns_datasets: int = 1_000
    slice_turns_tries: int = 20  # while others take what waits
    page_bytes: int = 64 * MIB
    slice_run_s: float = 24 * 3600.0
    slice_read_bytes: int = 1 * MIB  # input that comes with a claimed slice
    helping_bytes: int = 8 * MIB  # input of a slice's further rows read at once
    active_rows_bytes: int = 64 * MIB  # input of all rows that run in a process
    rows_begun_ahead: int = 64
    row_turn_ms: float = 10.0  # rows that never suspend give way to the loop after so long
    task_call_s: float = 300.0  # what a Celery task waits for one decision of its loop

    suspect_crashes: int = 2  # processes that died with a row before it runs alone
    suspect_deaths: int = 2  # and that die of it alone before it fails
    suspects_in_line: int = 10_000
    run_crashes: int = 5
    version_wait_s: float = 600.0  # without progress for want of a play's version, then the run fails
    version_retry_max_s: float = 30.0
    version_forget_s: float = 120.0
    wake_rows: int = 1_000
    wake_rounds: int = 100
    settled_runs_known: int = 1_000  # runs of datasets, in a process
    hold_ms: float = 30_000.0
    later_max_ms: float = 24 * 3_600_000.0

    # body and journal
    body_turns: int = 200_000
    body_loop_errors: int = 25
    defect_works: int = 1_000  # whose defects a process counts; the longest silent is forgotten
    body_poll_s: float = 0.1
    suspend_grace_s: float = 1.0
    refused_operations: int = 100
    cancel_rounds: int = 5
    body_call_s: float = 60.0
    body_slow_poll_s: float = 1.0
    recovery_wait_s: float = 300.0
    release_retry_s: float = 60.0
    release_delay_s: float = 1.0
    logs_per_scope: int = 10_000
    journal_entries: int = 20_000
    journal_bytes: int = 64 * MIB
    parked_bodies: int = 64
    zombie_tasks: int = 1_000
    fields_per_log: int = 20
    log_chars: int = 4_000

    play_threads: int = 256  # of a process, for what its plays call with asyncio.to_thread
    lookup_threads: int = 8  # for names of hosts, apart from those

    # durable waits
    row_short_sleep_s: float = 2.0  # a row sleeps this long in its slot
    row_rest_ms: float = 50.0  # what else a row asks for in this time waits together with its first wait
    sleep_max_s: float = 366 * 24 * 3600.0
    event_wait_s: float = 7 * 24 * 3600.0  # of an event wait that names no timeout
    event_wait_max_s: float = 90 * 24 * 3600.0
    event_keep_s: float = 7 * 24 * 3600.0
    event_batch: int = 10_000
    event_payload_bytes: int = 256 * KIB
    awaited_shown: int = 100
    poll_interval_ms: float = 2_000.0  # of an asynchronous tool that names none
    poll_interval_max_ms: float = 300_000.0
    poll_slower: float = 1.5
    async_tool_s: float = 24 * 3600.0

    # calls and posts
    post_calls: int = 200
    post_bytes: int = 1 * MIB
    post_told_s: float = 0.02  # after its arrival, to who watches
    run_calls_posted: int = 2_000  # of a run on one lane at once, by one process
    receipt_chunk: int = 1_000
    read_bytes: int = 32 * MIB
    call_gather_ms: float = 1.0
    poll_first_ms: float = 1_000.0
    poll_max_ms: float = 5_000.0
    repost_after_ms: float = 10_000.0
    repost_max_ms: float = 300_000.0
    receipt_wait_ms: float = 300_000.0
    wait_log_ms: float = 60_000.0
    reply_inline_bytes: int = 64 * KIB
    inbox_pop: int = 64
    inbox_block_s: float = 1.0
    inbox_ttl_s: float = 3_600.0
    inbox_messages: int = 10_000
    reply_message_bytes: int = 1 * MIB

    # steps, child plays
    local_wait_ms: float = 930_000.0  # for another process that works on the same shared key
    local_poll_ms: float = 50.0
    local_finish_s: float = 25.0  # what a stopping or waiting holder waits for its running steps
    uncommitted_local: int = 1_000
    children_per_row: int = 512
    program_depth: int = 32
    producers_per_cell: int = 12
    reads_per_row: int = 200

    # lanes
    coalesce_window_ms: float = 5.0
    tool_calls_in_flight: int = 256
    groups_per_lane: int = 8
    groups: int = 256
    takeover_batches: int = 100
    orphan_scan: int = 10_000
    stopped_runs: int = 10_000
    unreleased_leases: int = 100_000
    lane_wait_ms: float = 60_000.0
    ended_runs_ms: float = 1_000.0
    grace_wait_ms: float = 120_000.0
    lane_retry_ms: float = 1_000.0
    lease_ttl_s: float = 24 * 3600.0
    batch_record_ttl_s: float = 24 * 3600.0

    # pacing
    pacing_share: float = 0.985
    pacing_wire_slack: int = 2
    pacing_ahead_ms: float = 10.0
    pacing_floor: float = 1 / 16
    pacing_step: float = 1 / 16
    pacing_cut_ms: float = 1_000.0
    pacing_recover_ms: float = 1_000.0
    pacing_slot_wait_ms: float = 25.0
    pacing_slot_hold_s: float = 1_000.0
    pacing_late_ms: float = 5.0
    pacing_keep_s: float = 3_600.0
    pacing_line: int = 1_024
    pacing_line_keep_s: float = 120.0
    pacing_asks: int = 256
    lane_counts_s: float = 1.0
    lanes_keep_s: int = 86_400
    fixture_pacing: bool = False  # whether fixture calls keep to the rules that live ones do
    fixture_delay_ms: tuple[float, float] = (0.0, 0.0)  # shortest and longest answer of a fixture
    lane_high_water: int = 4_000
    lane_low_water: int = 2_000
    lane_look_s: float = 0.05
    lane_prefetch: int = 64
    lease_asks: int = 256
    scalar_groups_per_lane: int = 64
    groups_per_lane_max: int = 256
    parallelism_share: float = 1.5

    # budgets
    budget_wait_s: float = 7 * 24 * 3600.0  # of a call for room in its run's budget
    budget_forget_s: float = 300.0  # a refused call's row may be on its way to wait
    budget_poll_ms: float = 5_000.0  # of a live body that waits for budget
    quota_wait_ms: float = 900_000.0  # a scope stays closed where a used up quota doesn't say until when
    budget_asks: int = 1_000  # calls judged in one statement
    unfreed_charges: int = 100_000
    child_depth: int = 8

    # commit
    commit_retry_ms: float = 60_000.0
    commit_gather: int = 1_000

    # migrations
    migrate_lock_s: float = 2.0  # how long a migration may stand in the way of other statements
    migrate_attempts: int = 60
    migrate_pause_s: float = 1.0
    migrate_turn_s: float = 3_600.0  # for another process that migrates

    # execution API
    connect_timeout_ms: float = 10_000.0
    tool_timeout_ms: float = 930_000.0
    long_inference_timeout_ms: float = 900_000.0
    body_stall_ms: float = 30_000.0
    metadata_ttl_s: float = 600.0
    tool_facts_s: float = 1.0
    control_attempts: int = 3
    control_delays_ms: tuple[float, ...] = (100.0, 250.0)
    transport_attempts: int = 3
    retry_fallback_ms: float = 1_000.0
    retry_after_max_ms: float = 900_000.0
    rate_limited_total_ms: float = 900_000.0
    in_progress_total_ms: float = 930_000.0
    retry_wait_min_ms: float = 100.0
    retry_wait_max_ms: float = 30_000.0
    control_timeout_ms: float = 30_000.0
    control_calls_in_flight: int = 32
    control_body_bytes: int = 1 * MIB
    auth_scope_ttl_s: float = 600.0
    fence_wait_ms: float = 30_000.0
    metadata_tools: int = 1_000
    keepalive_s: float = 4.0
    error_body_bytes: int = 64 * KIB
    error_chars: int = 500
    response_bytes: int = 64 * MIB

    # fetches, secrets, captured logs
    fetch_headers_ms: float = 30_000.0
    fetch_body_ms: float = 60_000.0
    fetch_total_ms: float = 120_000.0
    fetch_attempts: int = 3
    fetch_retry_ms: float = 100.0  # x the attempt
    fetch_redirects: int = 5
    fetch_body_bytes: int = 3 * MIB
    fetch_request_bytes: int = 1 * MIB
    fetch_url_chars: int = 8_192
    fetch_headers: int = 100
    fetch_header_bytes: int = 32 * KIB
    fetch_addresses: int = 4  # of a host that are tried
    fetch_connections: int = 64  # of a process, all hosts
    secret_ttl_s: float = 60.0
    secrets_known: int = 10_000
    secret_chars: int = 16_384
    secret_timeout_ms: float = 10_000.0
    captured_lines: int = 200  # of prints and logging, a row
    left_over_wait_s: float = 1.0

    # values
    value_depth: int = 500
    receipt_output_bytes: int = 4 * MIB
    result_meta_bytes: int = 16 * KIB
    cell_bytes: int = 1 * MIB
    row_bytes: int = 8 * MIB
    result_bytes: int = 16 * MIB
    input_bytes: int = 1 * MIB
    csv_field_bytes: int = 1 * MIB
    csv_url_bytes: int = 1024 * MIB
    csv_url_s: float = 600.0
    csv_url_keep_s: float = 7 * 24 * 3600.0

    # reading datasets
    handle_page_rows: int = 1_000
    query_page_rows: int = 1_000
    handle_page_bytes: int = 8 * MIB
    materialize_rows: int = 10_000
    preview_rows: int = 25
    previews: int = 20
    preview_bytes: int = 64 * KIB
    read_inline_bytes: int = 64 * KIB
    sheet_columns: int = 1_500

    # seeding
    seed_pages_ahead: int = 16  # beyond those that are out; further ahead it rests
    seed_rest_share: float = 3.0  # of the time that the page took

    # row writer
    writer_rows: int = 2_000
    writer_bytes: int = 8 * MIB
    writer_lines: int = 10_000  # of the rows' logs in one write
    writer_buffer_bytes: int = 16 * MIB
    writer_flush_ms: float = 100.0
    writer_final_ms: float = 5.0
    writer_look_s: float = 5.0  # a slice that writes nothing asks so often whether it should go on
    writer_woken_s: float = 1.0  # a slice with rows that wait asks so often whether one was woken
    writer_retry_ms: float = 60_000.0
    writer_retry_first_s: float = 0.05
    writer_retry_max_s: float = 2.0
    failures_kept: int = 25

    # stores
    database_pool: int = 8
    database_timeout_s: float = 30.0
    database_connect_s: int = 10
    database_keepalive_s: int = 10
    database_keepalive_again_s: int = 5
    database_keepalives: int = 3
    database_silent_s: float = 30.0  # a connection whose words nobody confirms is lost
    database_attempts: int = 4
    database_retry_s: float = 0.1
    stall_log_s: float = 60.0
    claims_in_doubt: int = 1_000
    sweep_batch: int = 100
    session_keep_s: float = 24 * 3600.0
    wind_pages: int = 40
    redis_timeout_s: float = 10.0
    redis_connections: int = 32
    redis_health_check_s: float = 10.0
    redis_retries: int = 5
    redis_backoff_s: float = 0.05
    redis_backoff_max_s: float = 1.0

    # local stack: supervisor and embedded servers
    restart_first_s: float = 0.5
    restart_max_s: float = 8.0
    restart_deaths: int = 5
    restart_window_s: float = 60.0
    supervise_poll_s: float = 0.05
    ready_poll_s: float = 0.02
    worker_ready_s: float = 60.0
    start_wait_s: float = 45.0  # for a Redis that answers and takes no writes, as in a failover
    worker_stop_s: float = 35.0
    child_stopped_s: float = 5.0
    server_ready_s: float = 30.0
    server_stop_s: float = 10.0
    orphan_stop_s: float = 2.0
    orphan_server_stop_s: float = 4.0
    initdb_s: float = 120.0
    port_attempts: int = 3
    port_probe_s: float = 1.0
    account_probe_s: float = 20.0
    version_probe_s: float = 20.0
    data_folders: int = 16
    data_folder_wait_s: float = 15.0
    server_connections: int = 200
    server_redis_databases: int = 64
    output_tail_lines: int = 20
    output_line_bytes: int = 64 * KIB
    output_log_bytes: int = 32 * MIB

    # doctor, purge
    doctor_stuck_s: float = 60.0
    doctor_runs: int = 10
    doctor_again_s: float = 2.0  # between two looks at runs that stand still
    doctor_ask_s: float = 2.0
    doctor_clock_skew_s: float = 5.0
    doctor_connections_share: float = 0.8
    doctor_memory_share: float = 0.8
    purge_runs: int = 20
    purge_rows: int = 20_000
    purge_blocks: int = 512  # of the table of receipts, looked at in one step

    # events and samples of runs
    events_flush_ms: float = 200.0
    events_last_ms: float = 500.0  # after a run's end what still comes of it is told, then the end
    events_write: int = 1_000  # told at once
    events_buffered: int = 10_000
    events_kept: int = 2_000  # of a run, about
    events_keep_s: float = 24 * 3600.0
    event_bytes: int = 256 * KIB
    event_row_sample: int = 100  # every so many rows, or
    event_row_ms: float = 200.0
    event_row_samplers: int = 1_000  # datasets, in a process
    event_logs: int = 50  # lines of a write
    event_read: int = 500
    event_block_s: float = 1.0
    sample_s: float = 1.0  # between samples of a run, and
    samples_of_age: int = 400  # at most one in this part of its age
    sampled_runs: int = 1_000
    sampled_looks: int = 10_000  # live runs looked at for them; the next come in the next turn
    lane_samples_keep_s: float = 7 * 24 * 3600.0
    lane_sample_again_s: float = 20.0  # of a lane with work that doesn't change
    lane_sample_recent_s: float = 60.0  # older ones don't say how a lane stands
    report_samples: int = 100_000
    status_rate_s: float = 30.0  # over which a status says rates
    status_logs: int = 1_000
    report_points: int = 300  # of a curve

    # client and command line
    client_connect_s: float = 5.0
    client_redis_s: float = 2.0
    client_publish_retries: int = 1
    client_database_attempts: int = 2
    client_sheet_rows: int = 1_000
    cancel_wait_s: float = 10.0
    watch_poll_s: float = 0.2
    watch_line_s: float = 1.0
    watch_rate_window_s: float = 10.0
    watch_stall_s: float = 60.0
    watch_unreachable_s: float = 60.0
    watch_failures: int = 5
    watch_quiet_looks: int = 25  # at most one line a lane in so many
    lanes_watch_s: float = 1.0
    probe_s: float = 4.0
    probe_request_s: float = 5.0  # that a worker gives who asks for its probe
    broker_look_s: float = 5.0
    broker_look_retries: int = 1
    export_batch_rows: int = 5_000
    export_batch_bytes: int = 32 * MIB

    @property
    def page_rows(self) -> int:
        """Rows seeded and settled together."""
        return self.slice_rows * self.slices_per_page


DEFAULT_LIMITS = Limits()
