// Runs inside a page, as the body of an async function: what a reader would see and touch, as JSON.
const $ = (s) => document.querySelector(s), $$ = (s) => [...document.querySelectorAll(s)];
const root = document.documentElement, out = {};
out.ready = root.dataset.ready;
out.overflow = root.scrollWidth - root.clientWidth;
await Promise.all($$("img").map((i) => i.decode().catch(() => null)));
out.broken = $$("img").filter((i) => !(i.complete && i.naturalWidth > 0)).length;
out.empty = $$(".plot").filter((p) => !p.querySelector("svg path, svg rect.fill, svg circle")).length;
out.cut = $$(".plot svg text").filter((t) => t.textContent && (t.getBoundingClientRect().left < -1 || t.getBoundingClientRect().right > innerWidth + 1)).map((t) => t.textContent);
const slider = $("input[data-shows]");
if (slider) {
  const cards = () => [...document.getElementById(slider.dataset.shows).children].filter((c) => c.offsetParent !== null).length;
  out.shown = [];
  for (const v of [slider.min, slider.max]) { slider.value = v; slider.dispatchEvent(new Event("input")); out.shown.push([+v, cards()]); }
}
const marks = $("button[data-marks]");
if (marks) { const first = $("img[data-difference]"), before = first.src; marks.click(); out.marked = first.src !== before && first.className === "d"; marks.click(); out.unmarked = first.src === before; }
const sorter = $("select[data-sorts]");
if (sorter) out.sorted = [...sorter.options].map((o) => {
  sorter.value = o.value; sorter.dispatchEvent(new Event("change"));
  const [key, way] = o.value.split(" ");
  return [way, [...document.getElementById(sorter.dataset.sorts).children].filter((c) => !c.hidden).map((c) => +c.dataset[key])];
});
const column = $("table[data-sortable] th:nth-child(2) button");
if (column) {
  out.table = [];
  for (let i = 0; i < 2; i++) { column.click(); out.table.push([...column.closest("table").tBodies[0].rows].map((r) => +r.cells[1].dataset.v)); }
}
const lines = $("[data-chart=bound]");
if (lines) {
  const count = () => lines.querySelectorAll("path.line").length, before = count(), b = lines.querySelector("button.key");
  b.click(); const less = count(); b.click(); out.lines = [before, less, count()];
  const hit = lines.querySelector(".hit"), r = hit.getBoundingClientRect();
  hit.dispatchEvent(new PointerEvent("pointermove", { clientX: r.left + r.width / 2, clientY: r.top + 20, bubbles: true }));
  const tip = lines.querySelector(".tip"), t = tip.getBoundingClientRect();
  out.tip = getComputedStyle(tip).visibility === "visible" && /epoch/.test(tip.textContent) && /\d\.\d/.test(tip.textContent);
  out.tipInside = t.left >= -1 && t.right <= innerWidth + 1;
}
const luminance = (c) => { const [r, g, b] = c.match(/[\d.]+/g).map((v) => v / 255).map((v) => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
const contrast = () => {
  const paper = luminance(getComputedStyle(document.body).backgroundColor);
  const ratio = (c) => { const l = luminance(c); return (Math.max(l, paper) + .05) / (Math.min(l, paper) + .05); };
  return Math.min(...$$("p, h1, h2, h3, a, span, dt, dd, small, th, td, button, summary, figcaption").map((e) => ratio(getComputedStyle(e).color)),
    ...$$(".plot text").map((e) => ratio(getComputedStyle(e).fill)));
};
out.themes = [];
for (let i = 0; i < 3; i++) { out.themes.push([root.dataset.theme || "auto", getComputedStyle(document.body).backgroundColor, contrast()]); $("#theme").click(); }
out.back = root.dataset.theme || "auto";
// What a forged name tries to run: whatever is focused, hovered over or loaded.
$$("main *").slice(0, 3000).forEach((e) => { e.dispatchEvent(new Event("mouseover")); e.dispatchEvent(new Event("focus")); });
out.forged = root.dataset.forged ?? null;
return out;
