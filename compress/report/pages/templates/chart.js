"use strict";
// What the page's charts gain from a script: figures of the marker that is pointed at, another axis, models, and zoom.
for (const card of document.querySelectorAll(".charts")) {
  const figures = [...card.querySelectorAll("figure")];
  const controls = card.querySelector(".controls");
  const pointed = card.querySelector(".pointed");
  const markers = [...card.querySelectorAll("svg g[data-name]")];

  const group = (title) => {
    const fieldset = document.createElement("fieldset");
    const legend = document.createElement("legend");
    legend.textContent = title;
    fieldset.append(legend);
    controls.append(fieldset);
    return fieldset;
  };
  const choice = (parent, type, name, label, checked, changed) => {
    const wrapper = document.createElement("label");
    const input = document.createElement("input");
    Object.assign(input, { type, name, checked });
    input.addEventListener("change", () => changed(input.checked));
    wrapper.append(input, ` ${label}`);
    parent.append(wrapper);
  };

  if (figures.length > 1) {
    const show = (shown) => figures.forEach((figure) => (figure.hidden = figure !== shown));
    const axes = group("Against");
    const name = `axis-${Math.random()}`;
    figures.forEach((figure, number) => choice(axes, "radio", name, figure.dataset.axis, number === 0, () => show(figure)));
    show(figures[0]);
  }

  const models = [...new Set(markers.map((marker) => marker.dataset.name.split("/")[0]))];
  if (models.length > 1) {
    const shown = group("Models");
    for (const model of models) {
      choice(shown, "checkbox", model, model, true, (checked) => {
        for (const marker of markers) {
          if (marker.dataset.name.split("/")[0] === model) {
            marker.classList.toggle("dimmed", !checked);
            if (checked) marker.setAttribute("tabindex", "0");
            else marker.removeAttribute("tabindex");
          }
        }
      });
    }
  }

  const zoom = group("Zoom");
  const scale = (factor) => {
    for (const drawing of card.querySelectorAll("figure svg")) {
      drawing.dataset.whole ??= drawing.getAttribute("viewBox");
      const whole = drawing.dataset.whole.split(" ").map(Number);
      const [x, y, width, height] = drawing.getAttribute("viewBox").split(" ").map(Number);
      const size = [Math.min(width * factor, whole[2]), Math.min(height * factor, whole[3])];
      const left = Math.max(0, Math.min(x + (width - size[0]) / 2, whole[2] - size[0]));
      const top = Math.max(0, Math.min(y + (height - size[1]) / 2, whole[3] - size[1]));
      drawing.setAttribute("viewBox", factor ? `${left} ${top} ${size[0]} ${size[1]}` : drawing.dataset.whole);
    }
  };
  for (const [label, factor] of [["in", 0.7], ["out", 1 / 0.7], ["whole", 0]]) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = label;
    button.addEventListener("click", () => scale(factor));
    zoom.append(button);
  }
  for (const drawing of card.querySelectorAll("figure svg")) {
    let from = null;
    drawing.addEventListener("pointerdown", (event) => (from = [event.clientX, event.clientY]));
    drawing.addEventListener("pointerup", () => (from = null));
    drawing.addEventListener("pointerleave", () => (from = null));
    drawing.addEventListener("pointermove", (event) => {
      if (!from || !drawing.dataset.whole) return;
      const [x, y, width, height] = drawing.getAttribute("viewBox").split(" ").map(Number);
      const whole = drawing.dataset.whole.split(" ").map(Number);
      const pixel = width / drawing.clientWidth;
      const left = Math.max(0, Math.min(x - (event.clientX - from[0]) * pixel, whole[2] - width));
      const top = Math.max(0, Math.min(y - (event.clientY - from[1]) * pixel, whole[3] - height));
      from = [event.clientX, event.clientY];
      drawing.setAttribute("viewBox", `${left} ${top} ${width} ${height}`);
    });
  }

  for (const marker of markers) {
    const text = marker.querySelector("title").textContent;
    marker.setAttribute("tabindex", "0");
    marker.setAttribute("role", "img");
    marker.setAttribute("aria-label", text);
    for (const event of ["pointerenter", "focus"]) marker.addEventListener(event, () => (pointed.textContent = text));
  }
  for (const drawing of card.querySelectorAll("figure svg")) drawing.setAttribute("role", "group");
  controls.hidden = false;
}
