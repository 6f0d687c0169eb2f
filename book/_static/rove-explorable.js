/* The explorable: one query, one key and its value, RoPE beside RoVE, computed and drawn in the page.

   The mathematics comes first and knows nothing of the page; tests/test_explorable.py holds every number
   to rove_lab's. The state is one small object; each change computes all of it anew and draws it. */
(() => {
  // Mathematics. `rotary` is { base, dHead, interleaved, keep }, the arguments of rove_lab's RotaryEmbedding.

  /* Radians per token for each plane: base^(-2m / d_head), and 0 in a plane that does not turn. */
  const frequencies = ({ base, dHead, keep }) =>
    Array.from({ length: dHead / 2 }, (_, m) => (keep.includes(m) ? base ** ((-2 * m) / dHead) : 0));

  /* The two channels that turn together: neighbours, or half of the channels apart. */
  const planeChannels = ({ dHead, interleaved }) =>
    Array.from({ length: dHead / 2 }, (_, m) => (interleaved ? [2 * m, 2 * m + 1] : [m, m + dHead / 2]));

  /* R_t x, from a token's own frame to the common one. */
  const apply = (rotary, t, x) => {
    const turned = [...x];
    const omega = frequencies(rotary);
    planeChannels(rotary).forEach(([a, b], m) => {
      const [cos, sin] = [Math.cos(t * omega[m]), Math.sin(t * omega[m])];
      turned[a] = x[a] * cos - x[b] * sin;
      turned[b] = x[a] * sin + x[b] * cos;
    });
    return turned;
  };

  /* R_t^-1 x, from the common frame back to the token's own. */
  const undo = (rotary, t, x) => apply(rotary, -t, x);

  const dot = (x, y) => x.reduce((sum, value, c) => sum + value * y[c], 0);

  /* (R_i q) . (R_j k) / sqrt(d_head): what the softmax is given. */
  const score = (rotary, i, j, q, k) => dot(apply(rotary, i, q), apply(rotary, j, k)) / Math.sqrt(q.length);

  /* Three vectors that stand for what a head computes; the formula is on the page. */
  const vectors = (dHead) => {
    const wave = (step, start) => Array.from({ length: dHead }, (_, c) => Math.cos(step * c + start));
    return { q: wave(4.7, 2.5), k: wave(1.7, 2), v: wave(2.1, 1.5) };
  };

  /* Cosine of the angle between two vectors: 1 where they point the same way. */
  const likeness = (x, y) => dot(x, y) / Math.sqrt(dot(x, x) * dot(y, y));

  /* All that is shown, from the choices alone. RoPE leaves the value as it is at every stage. */
  const compute = (choices) => {
    const { i, j, plane } = choices;
    const { q, k, v } = vectors(choices.dHead);
    const common = apply(choices, j, v);
    const message = undo(choices, i, common);
    return {
      ...choices, q, k, v, common, message,
      offset: j - i,
      omega: frequencies(choices)[plane],
      angle: (j - i) * frequencies(choices)[plane],
      score: score(choices, i, j, q, k),
      likeness: { rope: likeness(v, v), rove: likeness(v, message) },
    };
  };

  // The page

  const TOKENS = 32;
  const NOTHING_TURNS = "no plane turns: RoVE is RoPE, and neither hears of positions";
  const start = { base: 100, dHead: 8, interleaved: false, keep: [0, 1, 2, 3], plane: 1, i: 20, j: 14 };
  window.roveExplorable = { frequencies, planeChannels, apply, undo, score, compute, state: compute(start) };

  const text = (x, digits = 0) => {
    const written = x.toFixed(digits);
    return Number(written) === 0 ? written.replace("-", "") : written.replace("-", "−"); // never "−0.00"
  };
  const point = (x, [a, b]) => `(${text(x[a], 2)}, ${text(x[b], 2)})`;
  const range = (from, to, step = 1) =>
    Array.from({ length: Math.round((to - from) / step) + 1 }, (_, n) => from + n * step);
  const path = (points) => `M${points.map(([x, y]) => `${x.toFixed(2)} ${y.toFixed(2)}`).join("L")}`;

  const set = (element, attributes) => {
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  };
  const svg = (name, attributes = {}, ...children) => {
    const made = set(document.createElementNS("http://www.w3.org/2000/svg", name), attributes);
    made.append(...children);
    return made;
  };

  const select = (name, values) => `<select name="${name}" autocomplete="off">${values.map((value) =>
    `<option value="${value}"${value === start[name] ? " selected" : ""}>` +
    `${value.toLocaleString("en").replace(/,/g, " ")}</option>`,
  ).join("")}</select>`;
  const STAGES = [["sent", "key’s frame"], ["on the way", "common frame"], ["read", "query’s frame"]];
  const SYMBOLS = {
    rope: ["<i>v</i>", "<i>v</i>", "<i>v</i>"],
    rove: ["<i>v</i>", "<i>R<sub>j</sub> v</i>", "<i>R<sub>i</sub></i><sup>−1</sup><i>R<sub>j</sub> v</i>"],
  };
  const dials = (method, name) => `<b class="ex-${method}">${name}</b>` + SYMBOLS[method].map((symbol, stage) =>
    `<div class="ex-figure"><svg viewBox="-60 -60 120 120" role="img" data-dial="${method}-${stage}"></svg>
      <p class="ex-caption">${symbol}<span data-number="${method}-${stage}"></span></p></div>`).join("");

  const SKELETON = `
    <div class="ex-choices">
      <label>base ${select("base", [10, 100, 1000, 10000, 500000])}</label>
      <label>d_head ${select("dHead", [4, 8, 16, 32])}</label>
      <label>pairs of channels <select name="interleaved" autocomplete="off">
        <option value="" selected>halves</option><option value="true">interleaved</option></select></label>
    </div>
    <div class="ex-line">
      <svg class="ex-tokens" role="group" aria-label="A line of tokens, drawn twice: queries above, keys below"></svg>
      <div class="ex-buttons">
        <button type="button" data-shift="-1" aria-label="shift both left">← shift both</button>
        <button type="button" data-shift="1" aria-label="shift both right">shift both →</button>
      </div>
    </div>
    <dl class="ex-numbers simple">
      <div><dt>offset <i>δ = j − i</i></dt><dd><span data-number="offset"></span></dd>
        <dd><small data-note="mask"></small></dd></div>
      <div><dt>score <i>q · R<sub>δ</sub> k</i> / √<i>d</i></dt><dd><span data-number="score"></span></dd>
        <dd><small>RoPE and RoVE</small></dd></div>
      <div><dt>angle <i>δω</i></dt><dd><span data-number="angle"></span> rad</dd>
        <dd><small>plane <span data-number="plane"></span>: <span data-number="turn"></span></small></dd></div>
      <div><dt>cosine with <i>v</i></dt>
        <dd><span class="ex-rope" data-number="likeness-rope"></span>
          <span class="ex-rove" data-number="likeness-rove"></span></dd>
        <dd><small>message: RoPE, RoVE</small></dd></div>
    </dl>
    <div class="ex-sides"><div class="ex-curves">
      <div class="ex-figure"><p class="ex-caption">Score at every offset</p>
        <svg role="img" data-chart="score"></svg></div>
      <div class="ex-figure"><p class="ex-caption">Cosine of message and <i>v</i>: <b class="ex-rope">RoPE</b>,
        <b class="ex-rove">RoVE</b></p><svg role="img" data-chart="message"></svg></div>
    </div>
    <div class="ex-dials"><span></span>
      ${STAGES.map(([name, frame]) => `<p>${name}<small>${frame}</small></p>`).join("")}
      ${dials("rope", "RoPE")}${dials("rove", "RoVE")}
    </div></div>
    <fieldset class="ex-planes">
      <legend>All planes and their channels, as the query reads them. Choose the one shown above; untick those that
        should not turn.</legend>
      <div class="ex-strip"></div>
      <div class="ex-buttons"><button type="button" data-keep="all">all turn</button>
        <button type="button" data-keep="none">none turns</button> <small data-note="planes"></small></div>
    </fieldset>`;

  const open = (box) => {
    let state = start;
    box.innerHTML = SKELETON;
    const find = (selector) => box.querySelector(selector);
    const number = (name, words) => (find(`[data-number="${name}"]`).textContent = words);
    const note = (name, words) => (find(`[data-note="${name}"]`).textContent = words);

    /* An arrow that turns the short way from where it was, so that a transition never spins back. */
    const pointTo = (arrow, x, [a, b], longest) => {
      const before = Number(arrow.dataset.angle ?? 0);
      const step = (Math.atan2(x[b], x[a]) - before) / (2 * Math.PI);
      const angle = before + 2 * Math.PI * (step - Math.round(step));
      const length = (50 * Math.hypot(x[a], x[b])) / longest;
      arrow.dataset.angle = angle;
      arrow.style.transform = `rotate(${-angle}rad)`; // the screen's y points down
      set(arrow, { d: `M0 0H${length}M${length - 10} -6.5L${length} 0L${length - 10} 6.5` });
    };

    /* From the arrow sent to the arrow now, a thread that winds outwards once a turn. */
    const winding = (from, angle) =>
      path(range(0, Math.max(2, Math.ceil(Math.abs(angle) * 8))).map((n, _, all) => {
        const turned = (angle * n) / (all.length - 1);
        const radius = 14 + (3.2 * Math.abs(turned)) / Math.PI;
        return [radius * Math.cos(from + turned), -radius * Math.sin(from + turned)];
      }));

    const drawDials = (now, channels, longest) => {
      const pair = channels[now.plane];
      const sent = Math.atan2(now.v[pair[1]], now.v[pair[0]]);
      const stages = { rope: [now.v, now.v, now.v], rove: [now.v, now.common, now.message] };
      const turns = { rope: [0, 0, 0], rove: [0, now.j * now.omega, now.angle] };
      for (const method of ["rope", "rove"]) {
        stages[method].forEach((x, stage) => {
          const dial = find(`[data-dial="${method}-${stage}"]`);
          if (!dial.children.length) {
            dial.append(svg("circle", { r: 50, class: "ex-ring" }), svg("path", { class: "ex-ghost" }),
              svg("path", { class: "ex-winding" }), svg("path", { class: `ex-arrow ex-${method}` }));
          }
          const [, ghost, thread, arrow] = dial.children;
          pointTo(ghost, now.v, pair, longest);
          pointTo(arrow, x, pair, longest);
          const turned = turns[method][stage];
          set(thread, { d: turned ? winding(sent, turned) : "" });
          set(dial, { "aria-label": `${method === "rope" ? "RoPE" : "RoVE"}, ${STAGES[stage].join(", ")}: ` +
            `${point(x, pair)}, turned by ${text(turned, 2)} radians` });
          number(`${method}-${stage}`, point(x, pair));
        });
      }
    };

    const drawStrip = (now, channels, longest) => {
      const strip = find(".ex-strip");
      if (strip.children.length !== channels.length) {
        strip.style.setProperty("--columns", Math.min(channels.length, 8));
        strip.innerHTML = channels.map((_, m) => `<div class="ex-plane">
          <label><input type="radio" name="plane" value="${m}"><svg viewBox="-56 -56 112 112" aria-hidden="true">
            <circle r="50" class="ex-ring"/><path class="ex-arrow ex-rope"/><path class="ex-arrow ex-rove"/></svg>
            <span aria-hidden="true"><b>${m}</b><small></small></span></label>
          <label><input type="checkbox" name="keep" value="${m}" aria-label="plane ${m} turns"></label></div>`).join("");
      }
      channels.forEach((pair, m) => {
        const [look, turns] = strip.children[m].querySelectorAll("input");
        const [rope, rove] = strip.children[m].querySelectorAll(".ex-arrow");
        look.checked = m === now.plane;
        turns.checked = now.keep.includes(m);
        set(look, { "aria-label": `show plane ${m}, channels ${pair[0]} and ${pair[1]}` });
        strip.children[m].querySelector("small").textContent = pair.join("·");
        pointTo(rope, now.v, pair, longest);
        pointTo(rove, now.message, pair, longest);
      });
      note("planes", now.keep.length ? "" : NOTHING_TURNS);
    };

    /* Lines over all offsets, with the present one marked; `curves` are [class, function of the offset]. */
    const drawChart = (name, now, curves, { words, low, high, ticks }) => {
      const chart = find(`[data-chart="${name}"]`);
      const [width, height, left, last] = [chart.clientWidth || 340, 178, 34, TOKENS - 1];
      const x = (offset) => left + ((offset + last) / (2 * last)) * (width - left - 10);
      const y = (value) => 22 + ((high - value) / (high - low)) * (height - 58);
      const label = (words, x, y, anchor) => svg("text", { x, y, "text-anchor": anchor }, words);
      const marks = [];
      for (const [kind, of] of curves) {
        const curve = range(-last, last, 0.125).map((offset) => [x(offset), y(of(offset))]);
        const dots = range(-last, last).map((offset) => `M${x(offset)} ${y(of(offset))}h0`).join("");
        marks.push(svg("path", { class: `ex-curve ex-${kind}`, d: path(curve) }),
          svg("path", { class: `ex-dots ex-${kind}`, d: dots }));
      }
      const present = curves.map(([kind, of]) =>
        svg("circle", { class: `ex-present ex-${kind}`, cx: x(now.offset), cy: y(of(now.offset)), r: 5.5 }));
      chart.replaceChildren(
        svg("rect", { class: "ex-future", x: x(0), y: 18, width: x(last) - x(0), height: height - 48 }),
        label("future", x(last), 12, "end"),
        ...ticks.map((value) => svg("path", { class: "ex-grid", d: `M${left} ${y(value)}H${x(last)}` })),
        ...ticks.map((value) => label(text(value, 1), left - 6, y(value) + 4, "end")),
        ...[-30, -20, -10, 0, 10, 20, 30].map((offset) => label(text(offset), x(offset), height - 12, "middle")),
        svg("path", { class: "ex-now", d: `M${x(now.offset)} 18V${height - 30}` }),
        ...marks, ...present);
      set(chart, { viewBox: `0 0 ${width} ${height}`, "aria-label": words });
    };

    const drawCurves = (now) => {
      const { q, k, v } = now;
      const scores = (offset) => score(now, 0, offset, q, k);
      const seen = [0, ...range(1 - TOKENS, TOKENS - 1, 0.125).map(scores)];
      const [low, high] = [Math.min(...seen), Math.max(...seen)];
      const unit = [0.2, 0.5, 1, 2].find((step) => high - low < 4 * step) ?? 5;
      const at = `at the present offset, ${text(now.offset)},`;
      drawChart("score", now, [["ink", scores]], {
        low, high, ticks: range(Math.ceil(low / unit), Math.floor(high / unit)).map((n) => n * unit),
        words: `The score as a curve over the offsets from −31 to 31; ${at} it is ${text(now.score, 3)}.`,
      });
      drawChart("message", now, [["rope", () => 1], ["rove", (offset) => likeness(v, apply(now, offset, v))]], {
        low: -1, high: 1, ticks: [-1, 0, 1],
        words: `Cosine of message and value over the offsets from −31 to 31; ${at} ` +
          `${text(now.likeness.rope, 3)} under RoPE, always, and ${text(now.likeness.rove, 3)} under RoVE.`,
      });
    };

    const tokens = find(".ex-tokens");
    const rows = { i: { name: "query", y: 46 }, j: { name: "key", y: 136 } };
    const place = (t) => 24 + (t / (TOKENS - 1)) * (tokens.clientWidth - 48);
    const link = svg("path", { class: "ex-link" });
    const head = svg("path", { class: "ex-head", d: "M-10 -5.5L0 0L-10 5.5Z" });
    const offsetLabel = svg("text", { class: "ex-offset" });
    tokens.append(link, head);

    for (const [which, row] of Object.entries(rows)) {
      row.dots = svg("path", { class: "ex-token" });
      row.area = svg("rect", { class: "ex-area", y: row.y - 28, width: "100%", height: 56 });
      row.handle = svg("g", {
        class: `ex-handle ex-${row.name}`, role: "slider", tabindex: 0, "aria-label": `position of the ${row.name}`,
        "aria-valuemin": 0, "aria-valuemax": TOKENS - 1,
      }, svg("circle", { r: 14 }), svg("text", { y: 6 }, which));
      row.label = svg("text", { class: "ex-row", y: which === "i" ? 14 : 180, "data-number": which });
      const line = svg("g", {}, row.area, row.dots, row.label, row.handle);
      tokens.append(line);

      // Wherever it is touched, the row takes its token there; a finger that goes on to scroll takes it back.
      let before = null;
      const follow = (event) => {
        const along = (event.clientX - tokens.getBoundingClientRect().left - 24) / (tokens.clientWidth - 48);
        change({ [which]: along * (TOKENS - 1) });
      };
      line.addEventListener("pointerdown", (event) => {
        if (event.button) return;
        event.preventDefault();
        before = state[which];
        line.setPointerCapture(event.pointerId);
        row.handle.focus({ preventScroll: true, focusVisible: false });
        follow(event);
      });
      line.addEventListener("pointermove", (event) => before !== null && follow(event));
      line.addEventListener("pointerup", () => (before = null));
      line.addEventListener("pointercancel", () => {
        if (before !== null) change({ [which]: before });
        before = null;
      });
      row.handle.addEventListener("keydown", (event) => {
        const steps = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 8, PageDown: -8 };
        const ends = { Home: 0, End: TOKENS - 1 };
        const to = ends[event.key] ?? state[which] + steps[event.key];
        if (Number.isNaN(to) || event.ctrlKey || event.altKey || event.metaKey) return;
        event.preventDefault();
        change({ [which]: to });
      });
    }
    tokens.append(offsetLabel);

    const drawTokens = (now) => {
      const [from, to] = [[place(now.j), rows.j.y - 15], [place(now.i), rows.i.y + 15]];
      const lean = (Math.atan2(to[1] - from[1], to[0] - from[0]) * 180) / Math.PI;
      set(link, { d: path([from, to]) });
      set(head, { transform: `translate(${to}) rotate(${lean})` });
      const middle = (from[0] + to[0]) / 2;
      const beside = 12 + 0.15 * Math.abs(to[0] - from[0]); // clear of the link, however flat
      const toTheLeft = middle + beside > tokens.clientWidth - 80;
      set(offsetLabel, { x: middle + (toTheLeft ? -beside : beside), y: 97, "text-anchor": toTheLeft ? "end" : "start" });
      offsetLabel.textContent = `δ = ${text(now.offset)}`;
      tokens.classList.toggle("ex-masked", now.offset > 0);
      for (const [which, { name, y, dots, handle }] of Object.entries(rows)) {
        number(which, `${name} at position ${which} = ${now[which]}`);
        set(dots, { d: range(0, TOKENS - 1).map((t) => `M${place(t)} ${y}h0`).join("") });
        set(handle, {
          transform: `translate(${place(now[which])} ${y})`, "aria-valuenow": now[which],
          "aria-valuetext": `${name} at ${now[which]}, offset ${text(now.offset)}, score ${text(now.score, 3)}, ` +
            `cosine of message and value ${text(now.likeness.rove, 3)} under RoVE`,
        });
      }
      for (const button of box.querySelectorAll("[data-shift]")) {
        const { i, j } = shifted(button);
        set(button, { "aria-disabled": Math.min(i, j) < 0 || Math.max(i, j) >= TOKENS });
      }
    };

    const draw = () => {
      const now = (window.roveExplorable.state = compute(state));
      const channels = planeChannels(now);
      const longest = Math.max(...channels.map(([a, b]) => Math.hypot(now.v[a], now.v[b])));
      drawTokens(now);
      drawCurves(now);
      drawDials(now, channels, longest);
      drawStrip(now, channels, longest);
      number("offset", text(now.offset));
      note("mask", now.offset > 0 ? "future: masked, if causal" : "tokens");
      number("score", text(now.score, 3));
      number("plane", text(now.plane));
      number("angle", text(now.angle, 3));
      number("turn", now.omega ? `${text((2 * Math.PI) / now.omega, 1)} tokens a turn` : "it does not turn");
      number("likeness-rope", text(now.likeness.rope, 3));
      number("likeness-rove", text(now.likeness.rove, 3));
    };

    const change = (choices) => {
      const token = (t) => Math.min(Math.max(Math.round(t), 0), TOKENS - 1);
      state = { ...state, ...choices };
      state = { ...state, i: token(state.i), j: token(state.j) };
      draw();
    };
    const shifted = ({ dataset }) => ({ i: state.i + Number(dataset.shift), j: state.j + Number(dataset.shift) });

    box.addEventListener("change", ({ target: { name, value, checked } }) => {
      if (name === "base") change({ base: Number(value) });
      if (name === "interleaved") change({ interleaved: Boolean(value) });
      if (name === "plane") change({ plane: Number(value) });
      if (name === "dHead") {
        const planes = Number(value) / 2;
        change({ dHead: Number(value), keep: range(0, planes - 1), plane: Math.min(state.plane, planes - 1) });
      }
      if (name === "keep") {
        const others = state.keep.filter((m) => m !== Number(value));
        change({ keep: checked ? [...others, Number(value)].sort((a, b) => a - b) : others });
      }
    });
    box.addEventListener("click", ({ target }) => {
      const button = target.closest("button");
      // At the end of the line a button stays, so that the keyboard's focus does too.
      if (button?.dataset.shift && button.ariaDisabled === "false") change(shifted(button));
      if (button?.dataset.keep) change({ keep: button.dataset.keep === "all" ? range(0, state.dHead / 2 - 1) : [] });
    });
    new ResizeObserver(draw).observe(box);
    draw();
    box.dataset.state = "drawn";
  };

  const boxes = () => document.querySelectorAll(".rove-explorable").forEach(open);
  if (document.readyState === "loading") addEventListener("DOMContentLoaded", boxes);
  else boxes();
})();
