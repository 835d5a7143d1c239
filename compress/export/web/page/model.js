// The model of this folder: its ONNX file in ONNX Runtime's WebAssembly build on one thread, and its tokenizer.

import * as ort from "./runtime/onnxruntime.js";
import { Encoder, splitWords } from "./encode.js";
import { KINDS } from "./tasks.js";

export class Model {
  /** @param read returns the bytes of a file of this folder, by its name. */
  static async load(read) {
    const json = async (name) => JSON.parse(new TextDecoder().decode(await read(name)));
    const settings = await json("page.json");
    const tokenizer = await json("tokenizer.json");
    const encoder = await explain(
      () => new Encoder(tokenizer, settings.tokenizer_config, settings.templates),
      "tokenizer.json cannot be read in JavaScript",
    );
    ort.env.wasm.numThreads = 1; // more would need headers that isolate the page from other origins
    ort.env.wasm.wasmBinary = await read("runtime/onnxruntime.wasm");
    const graph = await read(settings.model);
    const session = await explain(
      () => ort.InferenceSession.create(graph),
      `ONNX Runtime Web ${ort.env.versions.web} cannot run ${settings.model}`,
    );
    return new Model(settings, encoder, session);
  }

  constructor(settings, encoder, session) {
    this.task = settings.task;
    this.prompt = settings.prompt ?? ""; // goes before each text
    this.kind = KINDS[this.task.kind];
    this.encoder = encoder;
    this.session = session;
  }

  /** The prediction for the texts of one input, as `compress predict` returns it, with what it took. */
  async predict(texts) {
    const begin = performance.now();
    const isEmpty = this.isEmpty(texts);
    const examples = isEmpty ? [] : this.kind.examples(this.read(texts), this.task, this.encoder);
    const outputs = [];
    for (const example of examples) outputs.push(await this.run(example));
    return {
      prediction: isEmpty ? this.emptyAnswer(texts) : this.kind.predict(outputs, examples, texts, this.task),
      milliseconds: performance.now() - begin,
      tokens: examples.reduce((sum, example) => sum + example.tokens.length, 0),
      truncated: examples.some((example) => example.truncated),
      examples,
      outputs,
    };
  }

  /** The texts as the model reads them. */
  read(texts) {
    return this.prompt ? texts.map((text) => this.prompt + text) : texts;
  }

  /** Whether there is nothing to predict from: white space alone, or in one text where the kind needs all. */
  isEmpty(texts) {
    const blank = texts.map((text) => splitWords(text).length === 0);
    return blank.some(Boolean) && (this.kind.needsEveryText || blank.every(Boolean));
  }

  emptyAnswer(texts) {
    const fields = this.kind.answers(texts).map((name) => [name, null]);
    return { ...Object.fromEntries(fields), reason: "no text" };
  }

  /** The outputs of one example, by name: arrays with the axes of `dims` after the first. */
  async run({ tokens }) {
    const columns = {
      input_ids: (token) => token.id,
      attention_mask: () => 1,
      token_type_ids: (token) => token.type,
    };
    const feed = {};
    for (const name of this.session.inputNames) {
      const values = BigInt64Array.from(tokens, (token) => BigInt(columns[name](token)));
      feed[name] = new ort.Tensor("int64", values, [1, tokens.length]);
    }
    const results = await this.session.run(feed);
    const outputs = {};
    for (const [name, { data, dims }] of Object.entries(results)) {
      if (!data.every(Number.isFinite)) throw new Error(`The model's output ${name} is not a number.`);
      outputs[name] = reshape(Array.from(data), dims.slice(1));
    }
    return outputs;
  }
}

/** What `make` returns; where it fails, the error begins with `message`. */
async function explain(make, message) {
  try {
    return await make();
  } catch (error) {
    throw new Error(`${message}: ${error.message ?? error}`);
  }
}

function reshape(values, dims) {
  if (dims.length < 2) return values;
  const size = values.length / dims[0];
  return Array.from({ length: dims[0] }, (_, index) => reshape(values.slice(index * size, (index + 1) * size), dims.slice(1)));
}
