// Token classification: a tag for each word, that of its first token. A word that is in two windows gets the tag of the
// one in which it is farther from the edge.

import { splitWords } from "./encode.js";
import { softmax } from "./vectors.js";

export const taggingKind = {
  fields: null,
  answers: () => ["tags"],

  examples([text], task, encoder) {
    return encoder.windows(null, encoder.wordTokens(splitWords(text)), task.max_length, task.overlap, task.max_windows);
  },

  predict(outputs, examples, [text], task) {
    const words = splitWords(text).map((word) => ({ word, tag: "O", probability: 0, margin: -1 }));
    examples.forEach(({ tokens }, window) => {
      tokens.forEach(({ word, isFirst }, position) => {
        const margin = Math.min(position, tokens.length - 1 - position);
        if (!isFirst || margin < words[word].margin) return;
        const probabilities = softmax(outputs[window].logits[position]);
        const best = probabilities.indexOf(Math.max(...probabilities));
        Object.assign(words[word], { tag: task.labels[best], probability: probabilities[best], margin });
      });
    });
    return { tags: words.map(({ tag }) => tag), words };
  },
};
