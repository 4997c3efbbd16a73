"use strict";
for (const figure of document.querySelectorAll("figure")) {
  const points = [...figure.querySelectorAll("circle")];
  const caption = figure.querySelector("figcaption");
  if (!points.length || !caption) continue;
  const readout = caption.appendChild(document.createElement("output"));
  let near = null;
  const show = (point) => {
    near?.classList.remove("near");
    near = point;
    near?.classList.add("near");
    readout.textContent = near ? near.textContent : "";
  };
  figure.addEventListener("pointermove", (event) => {
    const distance = (point) => {
      const box = point.getBoundingClientRect();
      return Math.hypot(box.x + box.width / 2 - event.clientX, (box.y + box.height / 2 - event.clientY) / 3);
    };
    const distances = points.map(distance);
    show(points[distances.indexOf(Math.min(...distances))]);
  });
  figure.addEventListener("pointerleave", () => show(null));
}
