// The page: loads the model, predicts what one types, and shows each prediction with its latency.

import { Model } from "./model.js";
import { resultElements } from "./show.js";

const element = (id) => document.getElementById(id);

/** The bytes of a file of this folder. */
async function read(name) {
  const response = await fetch(name).catch(() => {
    throw new Error(`${name} could not be loaded: the server does not answer.`);
  });
  if (!response.ok) throw new Error(`${name} could not be loaded: the server answers ${response.status}.`);
  return new Uint8Array(await response.arrayBuffer());
}

function showError(error) {
  element("status").textContent = `The model cannot be used: ${error.message ?? error}`;
  element("status").className = "error";
}

/** Store all files in the browser, and show another export once it is stored. Only https or this computer may do so. */
async function keepOffline() {
  if (!("serviceWorker" in navigator)) {
    return "While this page is open it needs no network. To reload it offline, serve it from https or localhost.";
  }
  if (navigator.serviceWorker.controller !== null) {
    // Another export has replaced this one: the rest of its files must not be mixed with those that were read.
    navigator.serviceWorker.addEventListener("controllerchange", () => location.reload(), { once: true });
  }
  const registration = await navigator.serviceWorker.register("service_worker.js", { updateViaCache: "none" });
  const worker = registration.installing ?? registration.waiting ?? registration.active;
  await new Promise((resolve, reject) => {
    const follow = () => {
      if (worker.state === "activated") resolve();
      if (worker.state === "redundant") reject(new Error("a file could not be loaded, or the disk has too little free space"));
    };
    worker.addEventListener("statechange", follow);
    follow();
  });
  return "All files are stored in this browser: the page works offline.";
}

/** The texts in the form: one a field, or one a line in the field of a list. */
function typedTexts(kind) {
  return [...document.querySelectorAll("#inputs textarea")].flatMap((area) =>
    area.name === kind.list ? area.value.split("\n").filter((line) => line.trim() !== "") : [area.value],
  );
}

function makeFields(model) {
  for (const name of model.kind.fields ?? model.task.text) {
    const label = document.createElement("label");
    const area = document.createElement("textarea");
    area.name = name;
    label.append(name === model.kind.list ? `${name}, one a line` : name, area);
    element("inputs").append(label);
  }
  element("inputs").hidden = false;
}

async function update(model) {
  const texts = typedTexts(model.kind);
  const isComplete = texts.every((text) => text.trim() !== "") && (texts.length > 1 || model.kind.list === undefined);
  element("result").hidden = element("latency").hidden = !isComplete;
  if (element("result").hidden) return;
  try {
    const { prediction, milliseconds, tokens, truncated } = await model.predict(texts);
    element("result").replaceChildren(...resultElements(prediction));
    const cut = truncated ? ", the rest of the text was not read" : "";
    element("latency").textContent = `${milliseconds.toFixed(1)} ms, ${tokens} tokens${cut}`;
  } catch (error) {
    const message = document.createElement("p");
    message.className = "error";
    message.textContent = error.message ?? String(error);
    element("result").replaceChildren(message);
    element("latency").textContent = "";
  }
}

/** Predict after each change; of changes while one prediction runs, the last one counts. */
function predictWhileTyping(model) {
  let isRunning = false;
  let isOutdated = false;
  element("inputs").addEventListener("input", async () => {
    isOutdated = true;
    if (isRunning) return;
    isRunning = true;
    while (isOutdated) {
      isOutdated = false;
      await update(model);
    }
    isRunning = false;
  });
}

async function start() {
  // First, so that what the model needs is then read from the browser's store and not loaded twice.
  const offline = await keepOffline().catch((error) => `The page cannot be stored for offline use: ${error.message}.`);
  const model = await Model.load(read);
  document.title = element("title").textContent = model.task.name;
  element("about").textContent = `${model.task.kind.replaceAll("_", " ")}, up to ${model.task.max_length} tokens`;
  makeFields(model);
  predictWhileTyping(model);
  element("status").textContent = "Ready: the model runs in this page, and what is typed stays here.";
  element("offline").textContent = offline;
}

start().catch(showError);
