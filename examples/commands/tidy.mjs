#!/usr/bin/env node
// Keeps the newest files of a folder: `tidy.mjs FOLDER CALL`, where Boyd adds the call.
// It reads a line of JSON and answers with lines of JSON; what it says on stderr is logged.
import { mkdirSync, readFileSync, readdirSync, renameSync, rmdirSync, statSync } from "node:fs";
import { join } from "node:path";

const LIMIT = 3;
const [folder, call] = process.argv.slice(2);
const request = JSON.parse(readFileSync(0, "utf8"));

const say = (line) => console.log(JSON.stringify(line));
const age = (file) => statSync(join(folder, file)).mtimeMs;
const newest = () => readdirSync(folder).sort((a, b) => age(b) - age(a));
const surplus = () => newest().slice(request.params.keep);

const calls = {
  observe() {
    const files = newest().length;
    const severity = files > LIMIT ? "warning" : "info";
    say({ observation: { type: "metric", severity, data: { folder, files } } });
    return { result: null };
  },
  dry_run() {
    return { result: `would move ${surplus().length} files out of ${folder}` };
  },
  execute() {
    // Named after the execution: if it has to run again, it goes on in the same folder.
    const attic = `${folder}.${request.execution.replaceAll(":", "-")}`;
    mkdirSync(attic, { recursive: true });
    for (const file of surplus()) {
      console.error(`moving ${file}`);
      renameSync(join(folder, file), join(attic, file));
    }
    return { result: { attic } };
  },
  verify() {
    const left = newest().length;
    return { result: left <= request.params.keep, evidence: `${left} files are left` };
  },
  rollback() {
    const { attic } = request.result.output;
    for (const file of readdirSync(attic)) renameSync(join(attic, file), join(folder, file));
    rmdirSync(attic);
    return { result: "moved back" };
  },
};

say(calls[call] ? calls[call]() : { error: "no such call" });
