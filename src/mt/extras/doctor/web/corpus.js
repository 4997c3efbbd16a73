"use strict";
for (const button of document.querySelectorAll("button.copy")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const command = button.previousElementSibling;
    try {
      await navigator.clipboard.writeText(command.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(command);
      button.textContent = "Selected";
    }
  });
}
for (const map of document.querySelectorAll(".map")) {
  const caption = map.parentElement.querySelector("figcaption").appendChild(document.createElement("output"));
  map.addEventListener("pointermove", (event) => {
    const box = map.querySelector("svg").getBoundingClientRect();
    const share = (event.clientX - box.x) / box.width;
    const pair = Math.min(map.dataset.pairs, Math.floor(share * map.dataset.pairs) + 1);
    caption.textContent = share < 0 ? "" : `pair ${pair.toLocaleString("en")}`;
  });
}
const unfold = () => {
  const target = document.getElementById(location.hash.slice(1));
  if (target?.localName === "details") target.open = true;
};
addEventListener("hashchange", unfold);
unfold();
