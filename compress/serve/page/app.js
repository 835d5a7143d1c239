// Sends what is typed to the service, and shows the answer. A line break separates texts that are read together.

import { resultElements } from "./show.js";

const $ = (id) => document.getElementById(id);
const { paths } = await (await fetch("openapi.json")).json();

/** An answer as the page shows it: tags beside their words, with the probability of their entity. */
function shown(answer, text) {
  if (!answer.tags) return answer;
  const shareOf = (place) => answer.entities.find(({ start, end }) => start <= place && place < end)?.probability ?? 1;
  const words = text.trim().split(/\s+/);
  return { words: words.map((word, place) => ({ word, tag: answer.tags[place], probability: shareOf(place) })) };
}

for (const [path, { post }] of Object.entries(paths)) {
  const [, name] = path.match(/^\/models\/([^/]+)\/predict$/) ?? [];
  if (name) $("model").append(new Option(`${name}: ${post.summary}`, name));
}
$("model").hidden = $("model").length < 2;
$("title").textContent = $("model").length < 2 ? $("model").value : "Models";
$("about").textContent = $("model").length < 2 ? $("model").selectedOptions[0].text : "";

$("inputs").addEventListener("submit", async (event) => {
  event.preventDefault();
  const lines = $("text").value.split("\n").filter((line) => line.trim());
  const text = lines.length > 1 ? lines : $("text").value;
  const start = performance.now();
  const response = await fetch(`models/${$("model").value}/predict`, {
    method: "POST",
    body: JSON.stringify({ texts: [text], probabilities: true }),
  });
  const content = await response.json();
  $("latency").textContent = `${(performance.now() - start).toFixed(1)} ms`;
  const [answer] = content.answers ?? [{ error: content.error }];
  const problem = answer.error ?? answer.reason;
  $("status").textContent = problem ?? "";
  $("result").hidden = Boolean(problem);
  if (!problem) $("result").replaceChildren(...resultElements(shown(answer, $("text").value)));
});
