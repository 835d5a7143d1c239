// Texts to token ids, by the same rules as the Python side: each text is tokenized without special tokens, cut, and
// then filled into the tokenizer's template. A token is {id, word}, where word is -1 outside of split texts; in an example
// it also has a type and a sequence: 0 or 1, or -1 for a special token.

import { Tokenizer } from "./runtime/tokenizers.js";

// White space of Unicode, by which words are separated.
const SPACE = /[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/u;

// Tokens that hold only the space between words, as SentencePiece and byte-level BPE write it.
const BLANK = /^[\u2581\u0120]*$/u;

export function splitWords(text) {
  return text.split(SPACE).filter((word) => word !== "");
}

export class Encoder {
  /** @param templates where the special tokens are: for one text (`single`) and for two (`pair`). */
  constructor(tokenizer, config, templates) {
    this.tokenizer = new Tokenizer(tokenizer, config);
    this.templates = templates;
  }

  /** One text, or two, cut to `most` tokens: of two the longer one first, then both to half. */
  encode(text, pair, most) {
    const first = this.tokens(text);
    if (pair === null) return this.#fill([first.slice(0, this.#room(most, false))], first.length);
    const second = this.tokens(pair);
    const room = this.#room(most, true);
    const short = Math.min(first.length, second.length, Math.floor(room / 2));
    const [head, tail] = first.length <= second.length ? [short, room - short] : [room - short, short];
    return this.#fill([first.slice(0, head), second.slice(0, tail)], first.length + second.length);
  }

  /** The last sequence in windows of up to `most` tokens that share `overlap`; `first` (or null) is in each of them. */
  windows(first, last, most, overlap, limit) {
    const room = this.#room(most, first !== null) - (first?.length ?? 0);
    if (room < 1) throw new Error("The first text leaves no room for the second one: it is too long.");
    const step = room - Math.min(overlap, Math.floor(room / 2));
    const parts = [];
    for (let start = 0; start === 0 || start - step + room < last.length; start += step) {
      parts.push(last.slice(start, start + room));
    }
    const examples = parts.slice(0, limit).map((part) => this.#fill(first === null ? [part] : [first, part]));
    examples.at(-1).truncated = parts.length > limit;
    return examples;
  }

  tokens(text) {
    return this.#encode(text).ids.map((id) => ({ id, word: -1 }));
  }

  /** The tokens of words that a space separates, with the index of the word, whether it begins there, whether the token
   * is only the space before it (the first word has none), and a number. */
  wordTokens(words) {
    const tokens = words.flatMap((word, index) => {
      const { ids, tokens } = this.#encode(index === 0 ? word : ` ${word}`);
      const first = tokens.findIndex((token) => !BLANK.test(token));
      return ids.map((id, position) => {
        return { id, word: index, isFirst: position === first, isBlank: index > 0 && BLANK.test(tokens[position]) };
      });
    });
    return tokens.map((token, place) => ({ ...token, place }));
  }

  #encode(text) {
    return this.tokenizer.encode(text, { add_special_tokens: false });
  }

  #room(most, isPair) {
    return most - this.templates[isPair ? "pair" : "single"].filter((item) => "id" in item).length;
  }

  #fill(sequences, before = 0) {
    const template = this.templates[sequences.length === 2 ? "pair" : "single"];
    const tokens = template.flatMap(({ id, sequence, type }) =>
      sequence === undefined
        ? [{ id, type, sequence: -1, word: -1 }]
        : sequences[sequence].map((token) => ({ ...token, type, sequence })),
    );
    return { tokens, truncated: before > sequences.flat().length };
  }
}
