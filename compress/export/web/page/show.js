// A prediction as elements of the page.

function create(tag, text, className = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  made.className = className;
  return made;
}

const percent = (share) => `${(100 * share).toFixed(1)} %`;

function bar(name, share) {
  const row = create("div", "", "row");
  const meter = create("meter", "");
  meter.value = share;
  row.append(create("span", name), meter, create("span", percent(share), "number"));
  return row;
}

function bars(shares) {
  return Object.entries(shares)
    .sort(([, one], [, other]) => other - one)
    .map(([name, share]) => bar(name, share));
}

function tagged({ word, tag, probability }) {
  const made = create("span", word, tag === "O" ? "" : "tagged");
  if (tag !== "O") made.append(create("small", `${tag} ${percent(probability)}`));
  return [made, " "];
}

/** By the field that a kind of prediction has and others lack. */
const SHOWN = {
  label: ({ label, probabilities }) => [create("strong", label), ...bars(probabilities)],
  labels: ({ labels, probabilities }) => [create("strong", labels.join(", ") || "none"), ...bars(probabilities)],
  score: ({ score }) => [create("strong", score.toFixed(3))],
  embedding: ({ embedding }) => [create("strong", `an embedding of ${embedding.length} numbers`)],
  words: ({ words }) => words.flatMap(tagged),
  answer: ({ answer, probability }) => [create("strong", answer ?? "no answer"), bar("probability", probability)],
  choice: ({ choice, probabilities }) => [
    create("strong", `choice ${choice}`),
    ...probabilities.map((share, place) => bar(`choice ${place + 1}`, share)),
  ],
  order: ({ order, scores }) =>
    order.map((place) => create("div", `candidate ${place + 1}: ${scores[place].toFixed(3)}`)),
};

export function resultElements(prediction) {
  const [field] = Object.keys(prediction).filter((name) => name in SHOWN);
  return SHOWN[field](prediction);
}
