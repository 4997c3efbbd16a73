"use strict";
const at = (id) => document.getElementById(id);

function element(name, text, ...children) {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  made.append(...children);
  return made;
}

function typeOf(schema) {
  if (schema.oneOf) return schema.oneOf.map(typeOf).join(" or ");
  if (schema.enum) return schema.enum.join(", ");
  if (schema.format === "binary") return "file";
  return schema.type === "array" ? "list" : schema.type;
}

function fieldsTable(schema) {
  const rows = Object.entries(schema.properties).map(([name, field]) => {
    const required = (schema.required || []).includes(name) ? "required" : "";
    const fallback = field.default === undefined ? required : `default: ${field.default}`;
    return element("tr", "", element("th", "", element("code", name)), element("td", typeOf(field)),
      element("td", fallback), element("td", field.description || ""));
  });
  const table = element("table", "", element("tbody", "", ...rows));
  table.querySelectorAll("th").forEach((cell) => { cell.scope = "row"; });
  return table;
}

// A line for a shell, with the examples of the description, in the languages of this server.
function curlLine(path, method, kind, schema, codes) {
  const url = new URL(`.${path}`, location.href).href.replace(/%7B.*/, "NAME");
  if (method === "get") return `curl ${url}`;
  const examples = Object.entries(schema.properties).filter(([, field]) => field.example !== undefined)
    .map(([name, field]) => [name, codes[name] || field.example]);
  if (kind === "multipart/form-data") return `curl ${url} ${examples.map(([n, value]) => `-F ${n}=${value}`).join(" ")}`;
  return `curl ${url} -H "Content-Type: application/json" -d '${JSON.stringify(Object.fromEntries(examples))}'`;
}

function operation(path, method, described, codes) {
  const section = element("section", "", element("h2", "", element("code", `${method.toUpperCase()} ${path}`)),
    element("p", described.summary + ". " + (described.description || "")));
  const [[kind, body] = []] = Object.entries(described.requestBody ? described.requestBody.content : {});
  if (body) section.append(element("div", "", fieldsTable(body.schema)));
  for (const parameter of described.parameters || []) {
    if (parameter.description) section.append(element("p", "", element("code", parameter.name), `: ${parameter.description}`));
  }
  section.append(element("pre", curlLine(path, method, kind, body && body.schema, codes)));
  section.append(element("p", `Answer: ${described.responses["200"].description}`));
  return section;
}

async function begin() {
  try {
    const [spec, settings] = await Promise.all(["spec", "frontend/settings"].map(async (path) => (await fetch(path)).json()));
    const { source, target } = settings.language;
    at("about").textContent = spec.info.description;
    const codes = { source: source.code, target: target.code };
    at("operations").replaceChildren(...Object.entries(spec.paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, described]) => operation(path, method, described, codes))));
  } catch {
    at("error").textContent = "The server cannot be reached.";
    at("error").hidden = false;
  }
}

begin();
