"use strict";
const at = (id) => document.getElementById(id);
const PAUSE = 300;        // milliseconds without a key before a translation is asked for
const ALTERNATIVES = 3;
let limit = 0;            // characters of a text; 0 until the server has reported it
let languages = [];
let timer = 0;
let running = new AbortController();  // of the last translation; an old answer never replaces a newer one
let detected = "";        // the language of the text, if it was not chosen
let sending = null;       // the request that sends a document
let fileLimit = 0;        // bytes of a document

async function request(path, body, signal) {
  const options = body === undefined ? {} :
    { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal };
  const response = await fetch(path, options);
  let content = null;
  try { content = await response.json(); } catch { /* reported below */ }
  if (!response.ok || content === null) {
    throw new Error(content && content.error ? content.error : `the server answered ${response.status}`);
  }
  return content;
}

function showError(text) {
  at("error").textContent = text;
  at("error").hidden = !text;
}

function nameOf(code) {
  return (languages.find((one) => one.code === code) || { name: code }).name;
}

function fill(select, codes, chosen) {
  select.replaceChildren(...codes.map((code) => new Option(code === "auto" ? "Detect language" : nameOf(code), code)));
  select.value = codes.includes(chosen) ? chosen : codes[0];
}

function targetsOf(code) {
  const sources = languages.filter((one) => code === "auto" || one.code === code);
  return [...new Set(sources.flatMap((one) => one.targets))];
}

function showTargets(chosen) {
  fill(at("target"), targetsOf(at("source").value), chosen || at("target").value);
  const [source, target] = [at("source").value, at("target").value];
  at("swap").disabled = source === "auto" || !targetsOf(target).includes(source);
  const body = JSON.stringify({ q: "Hello", source, target });
  at("curl").textContent = `curl ${new URL("translate", location.href)} -H "Content-Type: application/json" -d '${body}'`;
}

// "demo: English → Italian, French" for each model and source language
function describe(models) {
  const described = new Map();
  for (const one of models) {
    const start = `${one.name}: ${nameOf(one.source)} → `;
    described.set(start, [...(described.get(start) || []), nameOf(one.target)]);
  }
  return [...described].map(([start, targets]) => start + targets.join(", ")).join(" · ");
}

function showCount() {
  const length = [...at("text").value].length;
  at("count").textContent = limit ? `${length.toLocaleString()} / ${limit.toLocaleString()}` : `${length}`;
  at("count").classList.toggle("over", limit > 0 && length > limit);
  return limit === 0 || length <= limit;
}

function showAnswer(text, status) {
  at("result").textContent = text;
  at("result").classList.remove("waiting");
  at("status").textContent = status;
  for (const name of ["copy", "more", "improve"]) at(name).disabled = !text;
  showSuggestion(false);
}

function showSuggestion(shown) {
  at("suggestion").hidden = !shown;
  at("improve").setAttribute("aria-expanded", String(shown));
  if (!shown) return;
  at("better").value = at("result").textContent;
  at("better").focus();
}

function hideAlternatives() {
  at("alternatives").hidden = true;
  at("alternatives").replaceChildren();
  at("more").setAttribute("aria-expanded", "false");
}

function question() {
  const body = { q: at("text").value, source: at("source").value, target: at("target").value, format: "text" };
  if (at("key").value) body.api_key = at("key").value;
  return body;
}

// The answer to a question, or null; what the page shows stays until there is an answer, or `failed` is called.
async function ask(body, failed) {
  running.abort();
  running = new AbortController();
  const { signal } = running;
  at("result").classList.add("waiting");
  at("status").textContent = "Translating …";
  try {
    const answer = await request("translate", body, signal);
    if (signal.aborted) return null;
    showError("");
    return answer;
  } catch (error) {
    if (signal.aborted) return null;
    failed();
    showError(error instanceof TypeError ? "The server cannot be reached." : error.message);
    return null;
  }
}

async function translate() {
  clearTimeout(timer);
  running.abort();
  hideAlternatives();
  if (!showCount()) {
    showAnswer("", "");
    showError(`At most ${limit.toLocaleString()} characters can be translated at once.`);
    return;
  }
  if (!at("text").value.trim()) {
    showAnswer("", "");
    showError("");
    return;
  }
  const answer = await ask(question(), () => showAnswer("", ""));
  if (!answer) return;
  detected = answer.detectedLanguage ? answer.detectedLanguage.language : "";
  showAnswer(answer.translatedText, detected ? `Detected: ${nameOf(detected)}` : "");
}

function translateSoon() {
  showCount();
  clearTimeout(timer);
  timer = setTimeout(translate, PAUSE);
}

async function showAlternatives() {
  if (!at("alternatives").hidden) { hideAlternatives(); return; }
  const shown = at("result").textContent;
  const answer = await ask({ ...question(), alternatives: ALTERNATIVES }, () => showAnswer(shown, ""));
  if (!answer) return;
  showAnswer(answer.translatedText, "");
  const choices = answer.alternatives;
  at("alternatives").replaceChildren(...choices.map((text) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = text;
    button.addEventListener("click", () => {  // the two change places, so that none is lost
      const shown = at("result").textContent;
      showAnswer(button.textContent, "Alternative chosen");
      button.textContent = shown;
    });
    const item = document.createElement("li");
    item.append(button);
    return item;
  }));
  at("alternatives").hidden = choices.length === 0;
  at("status").textContent = choices.length ? "" : "No other translation was found";
  at("more").setAttribute("aria-expanded", String(choices.length > 0));
}

async function suggest() {
  const { q, source, target, api_key } = question();
  try {
    await request("suggest", { q, s: at("better").value, source: source === "auto" ? detected : source, target, api_key });
    showSuggestion(false);
    at("status").textContent = "Sent; thank you";
    showError("");
  } catch (error) {
    showError(error instanceof TypeError ? "The server cannot be reached." : error.message);
  }
}

function showWork(stage, done, total) {
  at("work").hidden = !stage;
  if (at("stage").textContent !== stage) at("stage").textContent = stage;  // screen readers announce every change
  at("amount").textContent = total ? `${Math.floor(100 * done / total)} %` : "";
  at("progress").hidden = at("cancel").hidden = done === undefined;
  at("download").hidden = true;
  if (total) { at("progress").max = total; at("progress").value = done; } else at("progress").removeAttribute("value");
}

function translateFile(file) {
  if (sending) sending.abort();
  showError("");
  if (file.size > fileLimit) {
    showWork("");
    showError(`${file.name} is larger than ${fileLimit.toLocaleString()} bytes.`);
    return;
  }
  const { source, target, api_key = "" } = question();
  const progress = [...crypto.getRandomValues(new Uint32Array(4))].map((one) => one.toString(36)).join("");
  const form = new FormData();
  for (const [name, value] of Object.entries({ source, target, api_key, progress, file })) form.append(name, value);
  const sent = sending = new XMLHttpRequest();
  let polling = 0;
  const show = (...state) => { if (sent === sending) showWork(...state); };
  const fail = (message) => { if (sent === sending) { showWork(""); showError(message); } };
  sent.open("POST", "translate_file");
  sent.responseType = "json";
  sent.upload.onprogress = (event) => show(`Uploading ${file.name}`, event.loaded, event.total);
  sent.upload.onload = () => {
    const stage = `Translating ${file.name}`;
    show(stage, 0, 0);
    polling = setInterval(async () => {
      const { translated, sentences } = await request(`file_progress/${progress}`).catch(() => ({}));
      if (sentences && polling) show(stage, translated, sentences);
    }, 500);
  };
  sent.onerror = () => fail("The server cannot be reached.");
  sent.onabort = () => fail("");
  sent.onload = () => {
    const answer = sent.response;
    if (sent.status !== 200 || !answer) { fail(answer && answer.error ? answer.error : `the server answered ${sent.status}`); return; }
    const path = answer.translatedFileUrl.split("/").pop();
    show(`Translated ${file.name}`);
    at("download").href = `download_file/${path}`;
    at("download").hidden = false;
  };
  sent.onloadend = () => { clearInterval(polling); polling = 0; if (sent === sending) sending = null; };
  showWork(`Uploading ${file.name}`, 0, 0);
  sent.send(form);
}

function drag(event) {
  if (at("document").hidden || !event.dataTransfer.types.includes("Files")) return;
  event.preventDefault();
  at("document").classList.toggle("over", event.type === "dragover");
  const [file] = event.dataTransfer.files;
  if (event.type === "drop" && file) translateFile(file);
}

function swap() {
  const [source, target, result] = [at("source").value, at("target").value, at("result").textContent];
  at("source").value = target;
  showTargets(source);
  at("text").value = result || at("text").value;
  translate();
}

async function copy() {
  try {
    await navigator.clipboard.writeText(at("result").textContent);
    at("status").textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(at("result"));
    at("status").textContent = "Selected; copy it with the keyboard";
  }
}

async function begin() {
  try {
    const [known, settings] = await Promise.all([request("languages"), request("frontend/settings")]);
    languages = known;
    limit = settings.charLimit;
    fileLimit = settings.fileLimit;
    at("models").textContent = describe(settings.models);
    at("improve").hidden = !settings.suggestions;
    at("document").hidden = !settings.filesTranslation;
    at("kinds").textContent = `or drop one here: ${settings.supportedFilesFormat.join(" ")}`;
    at("key-line").hidden = !settings.keyRequired;
    const sources = known.filter((one) => one.targets.length > 0).map((one) => one.code);
    fill(at("source"), sources.length > 1 ? [...sources, "auto"] : sources, settings.language.source.code);
    showTargets(settings.language.target.code);
  } catch {
    showError("The server cannot be reached.");
  }
  showCount();
  showAnswer("", "");
  if (at("text").value) translate();
}

at("text").addEventListener("input", translateSoon);
at("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) translate();
});
for (const side of ["source", "target"]) at(side).addEventListener("change", () => { showTargets(); translate(); });
at("key").addEventListener("change", translate);
at("swap").addEventListener("click", swap);
at("clear").addEventListener("click", () => { at("text").value = ""; translate(); at("text").focus(); });
at("more").addEventListener("click", showAlternatives);
at("copy").addEventListener("click", copy);
at("improve").addEventListener("click", () => showSuggestion(at("suggestion").hidden));
at("send").addEventListener("click", suggest);
at("file").addEventListener("change", () => { if (at("file").files[0]) translateFile(at("file").files[0]); at("file").value = ""; });
at("cancel").addEventListener("click", () => { if (sending) sending.abort(); });
for (const kind of ["dragover", "dragleave", "drop"]) document.addEventListener(kind, drag);
begin();
