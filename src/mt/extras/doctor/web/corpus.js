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
const unfold = () => {
  const target = document.getElementById(location.hash.slice(1));
  if (target?.localName === "details") target.open = true;
};
addEventListener("hashchange", unfold);
unfold();
