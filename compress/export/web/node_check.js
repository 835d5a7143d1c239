// Runs the folder of an export as its page does, and prints what the model sees and returns for each input, as JSON.
// Usage: node node_check.js FOLDER < {"inputs": [texts of each input], "bounds": {setting of the task: value}}

import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { Model } from "./model.js";

const folder = process.argv[2];
const { inputs, bounds } = JSON.parse(await text(process.stdin));

async function predict(model, texts) {
  let examples;
  try {
    examples = model.kind.examples(model.read(texts), model.task, model.encoder);
  } catch (error) {
    return { unread: error.message };
  }
  try {
    const { outputs, prediction } = await model.predict(texts);
    // An empty text has no prediction; its tokens are compared all the same.
    for (const example of examples.slice(outputs.length)) outputs.push(await model.run(example));
    return { ids: examples.map(({ tokens }) => tokens.map(({ id }) => id)), outputs, prediction };
  } catch (error) {
    return { error: error.message };
  }
}

async function run() {
  const model = await Model.load((name) => readFile(join(folder, name)));
  Object.assign(model.task, bounds);
  const results = [];
  for (const texts of inputs) results.push(await predict(model, texts));
  return { results };
}

console.log(JSON.stringify(await run().catch((error) => ({ error: error.message ?? String(error) }))));
