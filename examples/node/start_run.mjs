// node start_run.mjs PLAY '{"some": "input"}' [RUN_ID]
// Starts a run with a Celery message and waits for its result in Postgres. Prints one JSON object.
// PLAYLANE_REDIS_URL and PLAYLANE_DATABASE_URL name the servers; runtime/schemas/plays.run.v1.json is the message.
import { randomUUID } from "node:crypto";
import Redis from "ioredis";
import pg from "pg";

const [play, input = "{}", runId = `node-${randomUUID()}`] = process.argv.slice(2);
const ENDED = ["completed", "failed", "cancelled"];
const WAIT_MS = 120_000;

// Celery's protocol 2 in the envelope that kombu reads from a Redis list.
function envelope(task, kwargs) {
  const id = randomUUID();
  return JSON.stringify({
    body: Buffer.from(JSON.stringify([[], kwargs, {}])).toString("base64"),
    "content-type": "application/json",
    "content-encoding": "utf-8",
    headers: { lang: "js", task, id, argsrepr: "()", kwargsrepr: `run=${kwargs.run_id}` },
    properties: {
      body_encoding: "base64",
      correlation_id: id,
      delivery_info: { exchange: "", routing_key: "control" },
      delivery_mode: 2,
      delivery_tag: randomUUID(),
      priority: 0,
    },
  });
}

async function send(kwargs) {
  const redis = new Redis(process.env.PLAYLANE_REDIS_URL);
  // Sending the same run_id again starts nothing new.
  await redis.lpush("control", envelope("plays.run", kwargs));
  await redis.quit();
}

async function result(database) {
  const until = Date.now() + WAIT_MS;
  while (Date.now() < until) {
    const { rows } = await database.query("select state, result, error from runs where run_id = $1", [runId]);
    if (rows.length && ENDED.includes(rows[0].state)) return { run_id: runId, ...rows[0] };
    await new Promise((wake) => setTimeout(wake, 200));
  }
  throw new Error(`run ${runId} goes on after ${WAIT_MS} ms`);
}

const database = new pg.Client({ connectionString: process.env.PLAYLANE_DATABASE_URL });
await database.connect();
try {
  await send({ version: 1, run_id: runId, play, input: JSON.parse(input), options: {} });
  const found = await result(database);
  console.log(JSON.stringify(found));
  process.exitCode = found.state === "completed" ? 0 : 1;
} finally {
  await database.end();
}
