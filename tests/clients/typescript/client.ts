// Ensures a sandbox, runs a command, writes, lists and reads a file, and deletes the sandbox. The
// compiler checks every call against types that are generated from the served description.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

declare const process: { env: Record<string, string | undefined> };

const options = {
  baseUrl: process.env.ISSUEBOX_URL,
  headers: { Authorization: `Bearer ${process.env.ISSUEBOX_TOKEN}` },
};
const api = createClient<paths>(options);
// An exec can answer as a stream of events, too; this client reads JSON alone.
const json = createClient<paths, "application/json">(options);

function expect(condition: boolean, what: string): asserts condition {
  if (!condition) throw new Error(`expected ${what}`);
}

/** The answer, or an error with the code that the server gave. */
function ok<T>(answer: { data?: T; error?: components["schemas"]["Failure"] }): T {
  if (answer.data === undefined) throw new Error(answer.error?.error.code);
  return answer.data;
}

const ensured = ok(
  await api.POST("/v1/sandboxes", {
    params: { query: { wait: 30 } },
    body: { issueId: "typescript-client" },
  }),
);
const outcome: components["schemas"]["Outcome"] = "created";
expect(ensured.outcome === outcome, `the outcome created, not ${ensured.outcome}`);
expect(ensured.data.phase === "running", `a running sandbox, not ${ensured.data.phase}`);
const id = ensured.data.id;

const ran = ok(
  await json.POST("/v1/sandboxes/{id}/exec", {
    params: { path: { id } },
    body: { command: ["echo", "hello"] },
  }),
);
expect(ran.data.exitCode === 0, "exit code 0");
expect(ran.data.stdout === "hello\n", `the output hello, not ${ran.data.stdout}`);

const file = { path: { id }, query: { path: "notes/a.txt" } };
const written = await api.PUT("/v1/sandboxes/{id}/files/content", {
  params: file,
  headers: { "content-type": "application/octet-stream" },
  body: "some bytes",
  bodySerializer: (bytes: string) => bytes,
});
expect(written.response.status === 201, "a new file");
const listed = ok(
  await api.GET("/v1/sandboxes/{id}/files", {
    params: { path: { id }, query: { path: "notes" } },
  }),
);
const [entry] = listed.data.entries;
expect(entry?.kind === "file" && entry.size === 10, "one file of ten bytes");
const read = ok(
  await api.GET("/v1/sandboxes/{id}/files/content", { params: file, parseAs: "text" }),
);
expect(read === "some bytes", `the bytes that were written, not ${read}`);

const missing = await api.GET("/v1/sandboxes/{id}/files/content", {
  params: { path: { id }, query: { path: "missing" } },
});
expect(missing.error?.error.code === "file_not_found", "the code file_not_found");

const deleted = ok(
  await api.DELETE("/v1/sandboxes/{id}", { params: { path: { id }, query: { wait: 30 } } }),
);
expect(deleted.data.phase === null, "a deleted sandbox");
console.log("ok");
