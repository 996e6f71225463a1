"use strict";
(() => {
  const $ = (s, e = document) => e.querySelector(s);
  const $$ = (s, e = document) => [...e.querySelectorAll(s)];
  const DATA = JSON.parse($("#data").textContent);

  // ------------------------------------------------------------ light and dark
  const root = document.documentElement, themes = ["auto", "light", "dark"], button = $("#theme");
  const keep = (v) => { try { localStorage.setItem("darn-theme", v); } catch { /* a page from a file may not store */ } };
  let theme = "auto";
  try { theme = localStorage.getItem("darn-theme") || "auto"; } catch { /* as above */ }
  const show = () => {
    if (theme === "auto") delete root.dataset.theme; else root.dataset.theme = theme;
    button.textContent = { auto: "◐ auto", light: "○ light", dark: "● dark" }[theme];
    button.setAttribute("aria-label", `colours: ${theme}; press to change`);
  };
  button.addEventListener("click", () => {
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const order = dark ? ["auto", "light", "dark"] : ["auto", "dark", "light"];
    theme = order[(order.indexOf(theme) + 1) % themes.length];
    keep(theme); show();
  });
  show();

  // ------------------------------------------------------------ charts
  const NS = "http://www.w3.org/2000/svg";
  const el = (parent, name, attributes, text) => {
    const e = document.createElementNS(NS, name);
    // Colours go through the style object: the page's policy forbids style attributes.
    for (const k in attributes) if (k === "colour") e.style.setProperty("--c", attributes[k]); else e.setAttribute(k, attributes[k]);
    if (text !== undefined) e.textContent = text;
    parent.append(e);
    return e;
  };
  // Figures of a value on an axis whose marks are `step` apart.
  const format = (v, step) => v.toLocaleString("en", {
    minimumFractionDigits: 0, maximumFractionDigits: Math.max(0, Math.min(6, 1 - Math.floor(Math.log10(step || 1)))) });
  const ticks = (lo, hi, n) => {
    const rough = (hi - lo) / Math.max(n, 1), size = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((k) => k * size).find((s) => s >= rough);
    const out = [];
    for (let v = Math.ceil(lo / step - 1e-9) * step; v <= hi + step * 1e-9; v += step) out.push(Math.abs(v) < step / 1e6 ? 0 : v);
    return out;
  };
  const colour = (i, n) => n <= 1 || i === 0 ? "var(--accent)" :
    `color-mix(in srgb, var(--accent) ${Math.round(100 - 60 * i / (n - 1))}%, var(--paper))`;
  const COLOURS = { accent: "var(--accent)", soft: "var(--soft)", other: "var(--other)", ink: "var(--ink)" };
  const paint = (s, i, n) => COLOURS[s.colour] || (s.hue !== undefined ? `hsl(${s.hue} 55% 48%)` : colour(i, n));

  function frame(plot, height, margin) {
    plot.textContent = "";
    const width = Math.max(plot.clientWidth, 200);
    const svg = el(plot, "svg", { viewBox: `0 0 ${width} ${height}`, height, "aria-hidden": "true" });
    const tip = document.createElement("div");
    tip.className = "tip";
    plot.append(tip);
    const box = { l: margin.l, r: width - margin.r, t: margin.t, b: height - margin.b, width, height };
    const say = (x, y, lines) => {
      tip.replaceChildren(...lines.flatMap((line, i) => i ? [document.createElement("br"), line] : [line]));
      tip.style.visibility = "visible";
      const w = tip.offsetWidth;
      tip.style.left = `${Math.max(0, Math.min(x + 14 + w > width ? x - w - 14 : x + 14, width - w))}px`;
      tip.style.top = `${Math.max(0, y - 10)}px`;
    };
    return { svg, box, say, hush: () => { tip.style.visibility = "hidden"; } };
  }
  const scale = (d0, d1, r0, r1) => (v) => r0 + (r1 - r0) * (d1 === d0 ? .5 : (v - d0) / (d1 - d0));

  function axes(f, x, y, spec) {
    const { svg, box } = f, [x0, x1] = x.domain, [y0, y1] = y.domain;
    for (const v of ticks(y0, y1, 7)) {
      el(svg, "line", { class: "axis", x1: box.l, x2: box.r, y1: y(v), y2: y(v) });
      el(svg, "text", { x: box.l - 8, y: y(v) + 4, "text-anchor": "end" }, format(v, (y1 - y0) / 6));
    }
    for (const v of ticks(x0, x1, box.width / 90))
      el(svg, "text", { x: x(v), y: box.b + 18, "text-anchor": "middle" }, format(v, (x1 - x0) / 9));
    if (spec.xlabel) el(svg, "text", { x: box.r, y: box.b + 36, "text-anchor": "end" }, spec.xlabel);
    if (spec.ylabel) el(svg, "text", { x: box.l - 8, y: box.t - 12, "text-anchor": "start", dx: -36 }, spec.ylabel);
  }
  const axis = (d0, d1, r0, r1) => Object.assign(scale(d0, d1, r0, r1), { domain: [d0, d1] });

  function pointer(f, move) {
    const hit = el(f.svg, "rect", { class: "hit", x: f.box.l, y: f.box.t, width: Math.max(f.box.r - f.box.l, 1), height: f.box.b - f.box.t });
    const at = (e) => { const r = f.svg.getBoundingClientRect(); move(e.clientX - r.left, e.clientY - r.top); };
    hit.addEventListener("pointermove", at);
    hit.addEventListener("pointerdown", at);
    hit.addEventListener("pointerleave", () => { f.hush(); f.off?.(); });
  }

  const KINDS = {
    lines(plot, spec, state) {
      const f = frame(plot, 300, { l: 46, r: 14, t: 28, b: 44 }), { svg, box } = f;
      const series = spec.series.filter((s) => !state.hidden.has(s.name));
      const xs = series.flatMap((s) => s.x), first = Math.min(...xs), last = Math.max(...xs);
      const shortest = Math.min(...series.map((s) => Math.max(...s.x)));
      const from = state.zoom && series.length ? first + (shortest - first) * .15 : first;
      const seen = series.flatMap((s) => s.y.filter((v, i) => v !== null && s.x[i] >= from));
      let lo = Math.min(...seen), hi = Math.max(...seen);
      if (!seen.length) { lo = 0; hi = 1; }
      const pad = (hi - lo) * .06 || .5;
      const x = axis(from, last, box.l, box.r), y = axis(lo - pad, hi + pad, box.b, box.t);
      axes(f, x, y, spec);
      if (spec.mark && spec.mark.x >= from) {
        el(svg, "line", { class: "mark", x1: x(spec.mark.x), x2: x(spec.mark.x), y1: box.t, y2: box.b });
        const left = x(spec.mark.x) > (box.l + box.r) / 2;
        el(svg, "text", { x: x(spec.mark.x) + (left ? -6 : 6), y: box.t + 10, "text-anchor": left ? "end" : "start" }, spec.mark.label);
      }
      spec.series.forEach((s, i) => {
        if (state.hidden.has(s.name)) return;
        const points = s.x.map((v, k) => [v, s.y[k]]).filter((p) => p[1] !== null && p[0] >= from);
        el(svg, "path", { class: "line", colour: paint(s, i, spec.series.length),
          d: points.map((p, k) => `${k ? "L" : "M"}${x(p[0]).toFixed(1)} ${y(p[1]).toFixed(1)}`).join("") });
        if (points.length === 1) el(svg, "circle", { class: "dot", colour: paint(s, i, spec.series.length), cx: x(points[0][0]), cy: y(points[0][1]), r: 4 });
      });
      const guide = el(svg, "line", { class: "mark", y1: box.t, y2: box.b, visibility: "hidden" });
      f.off = () => guide.setAttribute("visibility", "hidden");
      pointer(f, (px, py) => {
        const all = [...new Set(xs)].filter((v) => v >= from);
        if (!all.length) return;
        const v = all.reduce((a, b) => Math.abs(x(b) - px) < Math.abs(x(a) - px) ? b : a);
        guide.setAttribute("x1", x(v)); guide.setAttribute("x2", x(v)); guide.setAttribute("visibility", "visible");
        const lines = series.map((s) => [s, s.x.indexOf(v)]).filter((p) => p[1] >= 0).map(([s, k]) => `${s.name}  ${s.y[k] === null ? "–" : s.y[k].toFixed(3)}`);
        f.say(x(v), py, [`${spec.xunit || ""} ${v.toLocaleString("en")}`.trim(), ...lines]);
      });
    },
    hist(plot, spec) {
      const f = frame(plot, 250, { l: 14, r: 14, t: 30, b: 44 }), { svg, box } = f, e = spec.edges, n = e.length - 1;
      const marks = spec.marks || [], ends = [e[0], e[n], ...marks.map((m) => m.x)];
      const x = axis(Math.min(...ends), Math.max(...ends), box.l, box.r);
      const share = spec.series.map((s) => { const t = s.counts.reduce((a, b) => a + b, 0) || 1; return s.counts.map((c) => c / t); });
      const y = axis(0, Math.max(...share.flat(), 1e-9), box.b, box.t);
      el(svg, "line", { class: "axis", x1: box.l, x2: box.r, y1: box.b, y2: box.b });
      for (const v of ticks(...x.domain, box.width / 70)) el(svg, "text", { x: x(v), y: box.b + 18, "text-anchor": "middle" }, format(v, (x.domain[1] - x.domain[0]) / 9));
      if (spec.xlabel) el(svg, "text", { x: box.r, y: box.b + 36, "text-anchor": "end" }, spec.xlabel);
      spec.series.forEach((s, i) => {
        const c = paint(s, i, spec.series.length);
        if (i === 0) share[0].forEach((v, k) => v && el(svg, "rect", { class: "fill", colour: c, opacity: spec.series.length > 1 ? .35 : .8,
          x: x(e[k]) + .5, width: Math.max(x(e[k + 1]) - x(e[k]) - 1, .5), y: y(v), height: box.b - y(v) }));
        else el(svg, "path", { class: "line", colour: c, d: `M${x(e[0])} ${box.b}` + share[i].map((v, k) => `L${x(e[k])} ${y(v)}L${x(e[k + 1])} ${y(v)}`).join("") + `L${x(e[n])} ${box.b}` });
      });
      marks.forEach((m, i) => {
        el(svg, "line", { class: "mark", x1: x(m.x), x2: x(m.x), y1: box.t - 2, y2: box.b });
        const left = x(m.x) > (box.l + box.r) / 2;
        el(svg, "text", { x: x(m.x) + (left ? -5 : 5), y: box.t + 8 + 15 * i, "text-anchor": left ? "end" : "start" }, m.label);
      });
      pointer(f, (px, py) => {
        const k = e.findIndex((v, j) => j < n && px >= x(e[j]) && px <= x(e[j + 1]));
        if (k < 0) return f.hush();
        const whole = e[k + 1] - e[k], range = spec.integer ? (whole === 1 ? `${Math.ceil(e[k])}` : `${Math.ceil(e[k])} to ${Math.floor(e[k + 1])}`)
          : `${format(e[k], whole / 10)} to ${format(e[k + 1], whole / 10)}`;
        f.say(px, py, [range, ...spec.series.map((s) => `${spec.series.length > 1 ? s.name + ": " : ""}${s.counts[k].toLocaleString("en")} ${spec.unit || "rows"}`)]);
      });
    },
    dots(plot, spec) {
      const narrow = plot.clientWidth < 520, label = narrow ? 0 : 190, step = narrow ? 46 : 34;
      const f = frame(plot, spec.rows.length * step + 40, { l: label + 10, r: 20, t: 8, b: 32 }), { svg, box } = f;
      const all = spec.rows.flatMap((r) => [r.lo ?? r.value, r.hi ?? r.value]), span = Math.max(...all) - Math.min(...all) || 1;
      const x = axis(Math.min(...all) - span * .06, Math.max(...all) + span * .12, box.l, box.r);
      for (const v of ticks(...x.domain, box.width / 140)) {
        el(svg, "line", { class: "axis", x1: x(v), x2: x(v), y1: box.t, y2: box.b });
        el(svg, "text", { x: x(v), y: box.b + 18, "text-anchor": "middle" }, format(v, span / 6));
      }
      spec.rows.forEach((r, i) => {
        const y = box.t + step * (i + (narrow ? .72 : .5)), c = COLOURS[r.colour] || "var(--soft)";
        el(svg, "text", { x: narrow ? box.l : label, y: narrow ? y - 14 : y + 4, "text-anchor": narrow ? "start" : "end", class: r.colour === "accent" ? "strong" : "" }, r.name);
        if (r.lo !== undefined) el(svg, "line", { x1: x(r.lo), x2: x(r.hi), y1: y, y2: y, class: "interval", colour: c });
        el(svg, "circle", { class: "dot", colour: c, cx: x(r.value), cy: y, r: 5 });
        el(svg, "text", { x: Math.max(x(r.value), r.hi === undefined ? 0 : x(r.hi)) + 10, y: y + 4, class: "strong",
          ...(x(r.hi ?? r.value) > box.r - 60 ? { x: Math.min(x(r.lo ?? r.value), x(r.value)) - 10, "text-anchor": "end" } : {}) }, r.value.toFixed(2));
      });
    },
    scatter(plot, spec) {
      const side = Math.min(Math.max(plot.clientWidth, 200), 420);
      const f = frame(plot, side, { l: 46, r: plot.clientWidth - side + 14, t: 28, b: 44 }), { svg, box } = f;
      const [lo, hi] = spec.domain, x = axis(lo, hi, box.l, box.r), y = axis(lo, hi, box.b, box.t);
      axes(f, x, y, spec);
      el(svg, "line", { class: "mark", x1: x(lo), y1: y(lo), x2: x(hi), y2: y(hi) });
      spec.points.forEach((p) => el(svg, "circle", { class: "dot", colour: "var(--accent)", "fill-opacity": .7, cx: x(p[0]), cy: y(p[1]), r: spec.points.length > 300 ? 2.5 : 4 }));
      pointer(f, (px, py) => {
        let best = null, near = 400;
        spec.points.forEach((p, i) => { const d = (x(p[0]) - px) ** 2 + (y(p[1]) - py) ** 2; if (d < near) { near = d; best = i; } });
        if (best === null) return f.hush();
        const p = spec.points[best];
        f.say(x(p[0]), y(p[1]), [spec.names ? spec.names[best] : `${spec.unit} ${best + 1}`, `${spec.xshort} ${p[0].toFixed(3)}`, `${spec.yshort} ${p[1].toFixed(3)}`]);
      });
    },
    bars(plot, spec, state) {
      const f = frame(plot, 210, { l: 46, r: 14, t: 28, b: 30 }), { svg, box } = f, n = spec.values.length;
      const order = [...spec.values.keys()];
      if (state.sort) order.sort((a, b) => spec.values[b] - spec.values[a]);
      const top = spec.top ?? Math.max(...spec.values, 1e-9), y = axis(0, top, box.b, box.t), w = (box.r - box.l) / n;
      axes(f, Object.assign(axis(0, 1, box.l, box.r), { domain: [0, 0] }), y, spec);
      svg.querySelectorAll("text").forEach((t) => { if (+t.getAttribute("y") > box.b + 10) t.remove(); });
      const gap = w > 4 ? 1 : 0;
      order.forEach((j, i) => {
        el(svg, "rect", { class: "fill", colour: "var(--accent)", opacity: .8, x: box.l + i * w + gap / 2, width: Math.max(w - gap, .3), y: y(spec.values[j]), height: box.b - y(spec.values[j]) });
        if (spec.beside) el(svg, "line", { class: "beside", x1: box.l + i * w, x2: box.l + (i + 1) * w, y1: y(spec.beside[j]), y2: y(spec.beside[j]) });
      });
      el(svg, "text", { x: box.l, y: box.b + 18 }, state.sort ? "highest first" : `${spec.unit} 1`);
      el(svg, "text", { x: box.r, y: box.b + 18, "text-anchor": "end" }, state.sort ? "" : `${spec.unit} ${n}`);
      pointer(f, (px, py) => {
        const i = Math.floor((px - box.l) / w);
        if (i < 0 || i >= n) return f.hush();
        const j = order[i];
        f.say(px, py, [spec.names ? spec.names[j] : `${spec.unit} ${j + 1}`, `${spec.short} ${spec.values[j].toFixed(3)}`, ...(spec.beside ? [`${spec.besideShort} ${spec.beside[j].toFixed(3)}`] : [])]);
      });
    },
  };

  const charts = $$("[data-chart]").map((figure) => {
    const spec = DATA.charts[figure.dataset.chart], plot = $(".plot", figure);
    const state = { hidden: new Set(), zoom: false, sort: false };
    const draw = () => KINDS[spec.kind](plot, spec, state);
    const legend = $(".legend", figure), controls = $(".controls", figure);
    if (legend) spec.series.forEach((s, i) => {
      const span = document.createElement("span"), key = document.createElement("i");
      key.style.setProperty("--c", paint(s, i, spec.series.length));
      span.append(key, s.name);
      legend.append(span);
    });
    const toggle = (text, pressed, change, c) => {
      const b = document.createElement("button"), key = document.createElement("i");
      b.type = "button"; b.setAttribute("aria-pressed", pressed);
      if (c) { key.style.setProperty("--c", c); b.className = "key"; b.append(key); }
      b.append(text);
      b.addEventListener("click", () => {
        const on = b.getAttribute("aria-pressed") !== "true";
        b.setAttribute("aria-pressed", on); change(on); draw();
      });
      controls.append(b);
    };
    if (controls && spec.kind === "lines") {
      spec.series.forEach((s, i) => toggle(s.name, true,
        (on) => { if (on) state.hidden.delete(s.name); else state.hidden.add(s.name); }, paint(s, i, spec.series.length)));
      state.zoom = spec.zoom;
      toggle("skip the start", spec.zoom, (on) => { state.zoom = on; });
    }
    if (controls && spec.kind === "bars") toggle("sort", false, (on) => { state.sort = on; });
    draw();
    return draw;
  });
  let waiting = 0, width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => charts.forEach((draw) => draw()));
  });

  // ------------------------------------------------------------ galleries: how many, and in which order
  $$("input[data-shows]").forEach((input) => {
    const cards = $$(".card", document.getElementById(input.dataset.shows)), said = $("output", input.parentElement);
    const apply = () => { cards.forEach((c, i) => { c.hidden = i >= +input.value; }); said.textContent = input.value; };
    input.addEventListener("input", apply);
    apply();
  });
  $$("select[data-sorts]").forEach((select) => {
    const list = document.getElementById(select.dataset.sorts), cards = $$(".card", list);
    const apply = () => {
      const [key, way] = select.value.split(" ");
      cards.sort((a, b) => (way === "up" ? 1 : -1) * (a.dataset[key] - b.dataset[key]));
      cards.forEach((c, i) => { c.hidden = i >= +select.dataset.keeps; });
      list.append(...cards);
    };
    select.addEventListener("change", apply);
    apply();
  });
  $$("button[data-marks]").forEach((b) => b.addEventListener("click", () => {
    const on = b.getAttribute("aria-pressed") !== "true";
    b.setAttribute("aria-pressed", on);
    $$("img[data-difference]", document.getElementById(b.dataset.marks)).forEach((img) => {
      [img.src, img.dataset.difference] = [img.dataset.difference, img.src];
      img.className = on ? "d" : "p";
    });
  }));
  $$("table[data-sortable] th").forEach((th) => {
    const b = $("button", th);
    if (!b) return;
    b.addEventListener("click", () => {
      const body = th.closest("table").tBodies[0], up = th.getAttribute("aria-sort") === "descending";
      $$("th", th.parentElement).forEach((other) => other.removeAttribute("aria-sort"));
      th.setAttribute("aria-sort", up ? "ascending" : "descending");
      const value = (row) => +row.cells[th.cellIndex].dataset.v;
      body.append(...[...body.rows].sort((a, b) => (up ? 1 : -1) * (value(a) - value(b))));
    });
  });
  root.dataset.ready = "yes";
})();
