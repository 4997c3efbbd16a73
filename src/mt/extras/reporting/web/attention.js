"use strict";
for (const root of document.querySelectorAll(".attention")) {
  const maps = JSON.parse(root.dataset.maps);
  const make = (name, parent, text) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    parent.append(made);
    return made;
  };
  const isolated = (token) => `\u2068${token}\u2069`;  // a token from right to left would turn the arrow around
  const bar = make("div", root);
  bar.className = "bar";
  const choice = (name, options) => {
    const label = make("label", bar, `${name} `);
    const select = make("select", label);
    for (const [value, text] of options) select.append(new Option(text, value));
    select.addEventListener("change", show);
    return select;
  };
  const text = choice("Text", maps.map((map, i) => [i, `${i + 1}: ${map.text.slice(0, 60)}`]));
  const layer = choice("Layer", [["mean", "mean of all"], ...maps[0].weights.map((_, i) => [i, i + 1])]);
  const head = choice("Head", [["mean", "mean of all"], ...maps[0].weights[0].map((_, i) => [i, i + 1])]);
  if (maps.length === 1) text.parentElement.hidden = true;
  const scroll = make("div", root);
  scroll.className = "scroll";
  const status = make("p", root);
  status.className = "status";
  status.setAttribute("role", "status");

  function mean(lists) {
    const sum = lists[0].map((row) => row.map(() => 0));
    for (const list of lists) list.forEach((row, t) => row.forEach((value, s) => { sum[t][s] += value / lists.length; }));
    return sum;
  }

  function show() {
    const map = maps[text.value];
    const layers = layer.value === "mean" ? map.weights : [map.weights[layer.value]];
    const rows = mean(layers.map((heads) => head.value === "mean" ? mean(heads) : heads[head.value]));
    scroll.replaceChildren();
    const table = make("table", scroll);
    const top = make("tr", make("thead", table));
    make("td", top).style.border = "0";
    for (const token of map.source) make("span", make("th", top), token);
    const body = make("tbody", table);
    rows.forEach((row, t) => {
      const line = make("tr", body);
      make("th", line, map.target[t]);
      row.forEach((value, s) => {
        const cell = make("td", line);
        cell.style.background = `color-mix(in srgb, light-dark(#1456a0, #8ab8f2) ${value}%, transparent)`;
        cell.title = `${isolated(map.target[t])} ← ${isolated(map.source[s])}: ${Math.round(value)} %`;
        cell.addEventListener("mouseenter", () => { status.textContent = cell.title; });
      });
    });
  }
  show();
}
