// Runs exports in transformers.js: `node transformers_js_job.mjs PACKAGE CASES.json ANSWERS.json`, and as a module of a
// page. `opens` is one of its classes; the file is onnx/… of the folder unless `options` say otherwise.

export async function answers(transformers, cases) {
  const all = [];
  for (const each of cases) {
    all.push(await answer(transformers, each).catch((error) => ({ error: String(error.message ?? error) })));
  }
  return all;
}

async function answer(transformers, { folder, opens, options, rows, batch }) {
  const tokenizer = await transformers.AutoTokenizer.from_pretrained(folder);
  const model = await transformers[opens].from_pretrained(folder, options);
  const alone = [];
  for (const row of rows) {
    alone.push((await outputsOf(tokenizer, model, [row]))[0]);
  }
  const batched = [];
  for (let start = 0; batch && start < rows.length; start += batch) {
    batched.push(...(await outputsOf(tokenizer, model, rows.slice(start, start + batch))));
  }
  await model.dispose();
  return { alone, batched };
}

async function outputsOf(tokenizer, model, rows) {
  const second = rows[0].length > 1 ? rows.map((row) => row[1]) : null;
  const encoded = tokenizer(rows.map((row) => row[0]), { text_pair: second, padding: true, truncation: true });
  const outputs = Object.entries(await model(encoded)).filter(([, tensor]) => tensor?.dims?.[0] === rows.length);
  const [ids, masks] = [encoded.input_ids.tolist(), encoded.attention_mask.tolist()];
  return rows.map((_, index) => {
    const length = masks[index].map(Number).reduce((sum, each) => sum + each, 0);
    return {
      tokens: ids[index].slice(0, length).map(Number),
      outputs: Object.fromEntries(outputs.map(([name, tensor]) => [name, pack(tensor, index, masks[index].length, length)])),
    };
  });
}

// A row of a tensor; of outputs of tokens, whose second axis is as long as the batch, without those of its padding.
function pack(tensor, index, longest, length) {
  const [, ...shape] = tensor.dims;
  const size = shape.reduce((product, each) => product * each, 1);
  const row = tensor.data.slice(index * size, (index + 1) * size);
  const perToken = shape[0] === longest;
  const kept = perToken ? row.slice(0, (size / longest) * length) : row;
  const bytes = new Uint8Array(Float32Array.from(kept).buffer);
  let text = "";
  for (let start = 0; start < bytes.length; start += 8192) {
    text += String.fromCharCode(...bytes.subarray(start, start + 8192));
  }
  return { shape: perToken ? [length, ...shape.slice(1)] : shape, data: btoa(text) };
}

if (globalThis.process?.argv[1]?.endsWith("transformers_js_job.mjs")) {
  const { readFile, writeFile } = await import("node:fs/promises");
  const [, , script, cases, file] = process.argv;
  const transformers = await import(script);
  transformers.env.allowRemoteModels = false;
  await writeFile(file, JSON.stringify(await answers(transformers, JSON.parse(await readFile(cases, "utf8")))));
}
