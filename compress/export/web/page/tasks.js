// What each kind of task reads and answers. `fields` are its inputs on the page (null: the columns of the task),
// `examples` are what the model sees of them, and `predict` makes the prediction that `compress predict` makes. Without a
// text (`needsEveryText`: of several) all `answers` are null.

import { answerKind } from "./answers.js";
import { taggingKind } from "./tags.js";
import { dot, pool, softmax } from "./vectors.js";

/** One text or a pair: in one example, or in windows where long texts are not cut. */
function textExamples([text, pair = null], task, encoder) {
  if (task.long === "cut") return [encoder.encode(text, pair, task.max_length)];
  const { max_length: most, overlap, max_windows: limit } = task;
  if (pair === null) return encoder.windows(null, encoder.tokens(text), most, overlap, limit);
  const first = encoder.tokens(text).slice(0, Math.floor(most / 2));
  return encoder.windows(first, encoder.tokens(pair), most, overlap, limit);
}

function pooledLogits(outputs, task) {
  return pool(outputs.map(({ logits }) => logits), task.long);
}

function byLabel(values, task) {
  return Object.fromEntries(values.map((value, index) => [task.labels[index], value]));
}

const classification = {
  fields: null,
  answers: () => ["label", "probability"],
  examples: textExamples,
  predict(outputs, _examples, _texts, task) {
    const values = softmax(pooledLogits(outputs, task));
    const best = values.indexOf(Math.max(...values));
    return { label: task.labels[best], probability: values[best], probabilities: byLabel(values, task) };
  },
};

const multiLabel = {
  fields: null,
  answers: () => ["labels", "probabilities"],
  examples: textExamples,
  predict(outputs, _examples, _texts, task) {
    const values = pooledLogits(outputs, task).map((logit) => 0.5 * (1 + Math.tanh(0.5 * logit)));
    return { labels: task.labels.filter((_, index) => values[index] >= 0.5), probabilities: byLabel(values, task) };
  },
};

const regression = {
  fields: null,
  answers: () => ["score"],
  examples: textExamples,
  predict: (outputs, _examples, _texts, task) => ({ score: pooledLogits(outputs, task)[0] }),
};

/** One embedding of each text, and the cosine of two. */
function embeddingKind(fields) {
  return {
    fields,
    answers: (texts) => [texts.length > 1 ? "score" : "embedding"],
    needsEveryText: true,
    examples: (texts, task, encoder) => texts.map((text) => encoder.encode(text, null, task.max_length)),
    predict(outputs) {
      const [first, second] = outputs.map((output) => output.sentence_embedding);
      if (second === undefined) return { embedding: first };
      const norms = Math.sqrt(dot(first, first) * dot(second, second)); // 0 of a text without known pieces
      return { score: norms && dot(first, second) / norms };
    },
  };
}

/** A question with a list of texts, each scored on its own. */
function candidateKind(list, answers, predict) {
  return {
    fields: ["question", list],
    answers: () => answers,
    list,
    examples: ([question, ...texts], task, encoder) =>
      texts.map((text) => encoder.encode(question, text, task.max_length)),
    predict: (outputs) => predict(outputs.map(({ logits }) => logits[0])),
  };
}

function bestChoice(scores) {
  const probabilities = softmax(scores);
  const place = probabilities.indexOf(Math.max(...probabilities));
  const choice = place < 26 ? String.fromCharCode(65 + place) : String(place + 1);
  return { choice, place, probability: probabilities[place], probabilities };
}

function ranked(scores) {
  const order = scores.map((_, index) => index).sort((one, other) => scores[other] - scores[one] || one - other);
  return { order, scores };
}

export const KINDS = {
  classification,
  multi_label: multiLabel,
  regression,
  similarity: embeddingKind(null),
  retrieval: embeddingKind(["query", "document"]),
  multiple_choice: candidateKind("choices", ["choice", "place", "probability", "probabilities"], bestChoice),
  ranking: candidateKind("candidates", ["order", "scores"], ranked),
  token_classification: taggingKind,
  question_answering: answerKind,
};
