// Question answering: the span of the text with the highest score, or no answer. Tokens are known by their words here, so
// an answer is made of whole words, without the punctuation around it.

import { splitWords } from "./encode.js";
import { logSumExp } from "./vectors.js";

const MOST_QUESTION = 64; // tokens
const MOST_SPANS = 20; // that share the probability
const EDGES = /^[\p{P}\p{S}]+|[\p{P}\p{S}]+$/gu;

export const answerKind = {
  fields: null,
  answers: () => ["answer", "probability"],
  needsEveryText: true,

  examples([question, context], task, encoder) {
    const { max_length: most, overlap, max_windows: limit } = task;
    const asked = encoder.tokens(question).slice(0, Math.min(MOST_QUESTION, Math.floor(most / 2)));
    return encoder.windows(asked, encoder.wordTokens(splitWords(context)), most, overlap, limit);
  },

  predict(outputs, examples, [, context], task) {
    const spans = examples.flatMap(({ tokens }, window) => spansOf(tokens, outputs[window], task.max_answer));
    const best = mostLikely(spans);
    if (best.length === 0) return { answer: null, probability: 1 };
    const none = Math.min(...outputs.map((output) => output.start_logits[0] + output.end_logits[0]));
    const noAnswer = task.threshold === null ? -Infinity : none - task.threshold;
    const total = logSumExp([...best.map(({ score }) => score), noAnswer]);
    const [{ first, last, score }] = best;
    if (score < noAnswer) return { answer: null, probability: Math.exp(noAnswer - total) };
    const words = splitWords(context).slice(first.word, last.word + 1).join(" ");
    return { answer: words.replace(EDGES, "") || words, probability: Math.exp(score - total) };
  },
};

/** All spans of up to `longest` tokens of the text that begin and end with more than a space. */
function spansOf(tokens, { start_logits: starts, end_logits: ends }, longest) {
  const edges = tokens.flatMap(({ sequence, isBlank }, position) => (sequence === 1 && !isBlank ? [position] : []));
  return edges.flatMap((begin) =>
    edges
      .filter((end) => begin <= end && end < begin + longest)
      .map((end) => ({ first: tokens[begin], last: tokens[end], score: starts[begin] + ends[end] })),
  );
}

/** The best spans, best first; one that is in two windows counts once. */
function mostLikely(spans) {
  const best = new Map();
  for (const span of spans.sort((one, other) => other.score - one.score)) {
    const key = `${span.first.place} ${span.last.place}`;
    if (!best.has(key)) best.set(key, span);
    if (best.size === MOST_SPANS) break;
  }
  return [...best.values()];
}
