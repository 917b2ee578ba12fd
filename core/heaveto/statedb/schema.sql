-- heaveto's state database. Table and column names are those that lionagi uses, so
-- that one reader and one control writer serve both worlds; heaveto adds
-- session_controls."by" and session_controls.host and keeps only what it needs.
--
-- Every statement is additive and may run again. A column that an older file lacks is
-- added when the file is opened for writing, so a new column is nullable or has a
-- default. Times are epoch seconds, JSON columns hold text.

CREATE TABLE IF NOT EXISTS schema_meta (
    key   TEXT PRIMARY KEY NOT NULL,
    value TEXT NOT NULL
);

CREATE TABLE IF NOT EXISTS invocations (
    id                    TEXT PRIMARY KEY NOT NULL,
    skill                 TEXT,
    status                TEXT NOT NULL DEFAULT 'running'
        CHECK (status IN ('running', 'completed', 'completed_empty', 'failed',
                          'timed_out', 'aborted', 'cancelled')),
    created_at            REAL NOT NULL,
    updated_at            REAL NOT NULL,
    started_at            REAL,
    ended_at              REAL,
    node_metadata         JSON,
    status_reason_code    TEXT,
    status_reason_summary TEXT
);

CREATE TABLE IF NOT EXISTS sessions (
    id                         TEXT PRIMARY KEY NOT NULL,
    run_id                     TEXT,
    name                       TEXT,
    status                     TEXT NOT NULL DEFAULT 'running'
        CHECK (status IN ('running', 'completed', 'completed_empty', 'failed',
                          'timed_out', 'aborted', 'cancelled')),
    invocation_kind            TEXT
        CHECK (invocation_kind IS NULL OR invocation_kind IN
               ('agent', 'play', 'flow', 'fanout', 'show-play', 'engine')),
    invocation_id              TEXT REFERENCES invocations (id),
    node_metadata              JSON,
    current_phase              TEXT,
    artifact_contract_json     JSON,
    artifact_verification_json JSON,
    artifacts_path             TEXT,
    project                    TEXT,
    playbook_name              TEXT,
    agent_name                 TEXT,
    source_kind                TEXT DEFAULT 'live',
    model                      TEXT,
    provider                   TEXT,
    created_at                 REAL NOT NULL,
    updated_at                 REAL NOT NULL,
    started_at                 REAL,
    ended_at                   REAL,
    last_message_at            REAL,
    status_reason_code         TEXT,
    status_reason_summary      TEXT
);
CREATE INDEX IF NOT EXISTS idx_sessions_run_id
    ON sessions (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS idx_sessions_invocation
    ON sessions (invocation_id) WHERE invocation_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS idx_sessions_updated ON sessions (updated_at);

CREATE TABLE IF NOT EXISTS plays (
    id         TEXT PRIMARY KEY NOT NULL,
    name       TEXT,
    status     TEXT NOT NULL DEFAULT 'pending',
    session_id TEXT REFERENCES sessions (id),
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    started_at REAL,
    ended_at   REAL
);
CREATE INDEX IF NOT EXISTS idx_plays_session ON plays (session_id);

CREATE TABLE IF NOT EXISTS session_controls (
    id         TEXT PRIMARY KEY NOT NULL,
    session_id TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    verb       TEXT NOT NULL CHECK (verb IN ('pause', 'resume', 'message', 'stop')),
    payload    JSON,
    created_at REAL NOT NULL,
    claimed_at REAL,
    applied_at REAL,
    result     TEXT,
    "by"       TEXT,
    host       TEXT
);
CREATE INDEX IF NOT EXISTS idx_session_controls_pending
    ON session_controls (session_id, applied_at) WHERE applied_at IS NULL;
CREATE INDEX IF NOT EXISTS idx_session_controls_session
    ON session_controls (session_id, created_at, id);

CREATE TABLE IF NOT EXISTS session_signals (
    id         TEXT PRIMARY KEY NOT NULL,
    session_id TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    seq        INTEGER NOT NULL CHECK (seq >= 1),
    kind       TEXT NOT NULL,
    op_id      TEXT NOT NULL DEFAULT '',
    ts         REAL NOT NULL,
    payload    JSON NOT NULL DEFAULT '{}',
    CONSTRAINT idx_session_signals_seq UNIQUE (session_id, seq)
);

CREATE TABLE IF NOT EXISTS status_transitions (
    id              TEXT PRIMARY KEY NOT NULL,
    entity_type     TEXT NOT NULL,
    entity_id       TEXT NOT NULL,
    previous_status TEXT,
    status          TEXT NOT NULL,
    reason_code     TEXT NOT NULL,
    reason_summary  TEXT,
    source          TEXT NOT NULL,
    actor           TEXT,
    created_at      REAL NOT NULL,
    metadata        JSON
);
CREATE INDEX IF NOT EXISTS idx_status_transitions_entity
    ON status_transitions (entity_type, entity_id, created_at);
