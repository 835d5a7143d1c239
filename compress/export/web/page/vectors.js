// Arithmetic on lists of numbers.

export function softmax(logits) {
  const highest = Math.max(...logits);
  const odds = logits.map((logit) => Math.exp(logit - highest));
  return odds.map((value) => value / sum(odds));
}

export function dot(first, second) {
  return sum(first.map((value, index) => value * second[index]));
}

/** The logarithm of the sum of the exponentials; -Infinity of none. */
export function logSumExp(values) {
  const highest = Math.max(-Infinity, ...values);
  return highest === -Infinity ? highest : highest + Math.log(sum(values.map((value) => Math.exp(value - highest))));
}

/** The logits of a text from those of its windows: of the only one, their mean or maximum, or weighted by attention. */
export function pool(windows, how) {
  if (how === "cut") return windows[0];
  if (how === "max") return windows[0].map((_, label) => Math.max(...windows.map((window) => window[label])));
  const weights = how === "attention" ? softmax(windows.map((window) => window.at(-1))) : windows.map(() => 1 / windows.length);
  const labels = how === "attention" ? windows[0].slice(0, -1) : windows[0];
  return labels.map((_, label) => dot(weights, windows.map((window) => window[label])));
}

function sum(values) {
  return values.reduce((total, value) => total + value, 0);
}
