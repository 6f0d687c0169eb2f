/* Draw the page's plotly figures: plotly.js is read once, from beside the page, when a figure comes near
   or the page is idle. A figure's frames are driven by a native slider and a play button, so that keyboard, touch and
   screen readers work as they do everywhere. */
(() => {
  const LIBRARY = new URL("vendor/plotly.min.js", document.currentScript.src).href;
  const NARROW = matchMedia("(max-width: 600px)");
  const CALM = matchMedia("(prefers-reduced-motion: reduce)");
  const FAINT = "rgba(128, 128, 128, 0.28)";
  // In pixels, once a row of panels stands on end: with an axis to read, and without.
  const STACKED = { height: 240, gap: 80 };
  const STACKED_BARE = { height: 170, gap: 34 };
  // As the light scale in rove_lab/figures.py, with the page's dark in the middle.
  const DARK_SCALE = ["#d3a6ea", "#7d5691", "#22262d", "#3f8457", "#94dfaa"];

  let library;
  const load = () =>
    (library ??= new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = LIBRARY;
      script.onload = () => resolve(window.Plotly);
      script.onerror = () => reject(new Error(`cannot read ${LIBRARY}`));
      document.head.append(script);
    }));

  const isDark = () => document.documentElement.dataset.theme === "dark";

  /* The page's own colours and letters, as a plotly template. */
  const template = () => {
    const style = getComputedStyle(document.body);
    const page = (name) => style.getPropertyValue(name).trim();
    const text = page("--pst-color-text-base");
    const line = page("--pst-color-border");
    const surface = page("--pst-color-surface");
    const axis = {
      automargin: true, fixedrange: true, gridcolor: FAINT, zerolinecolor: FAINT, linecolor: line,
      tickcolor: line, title: { standoff: 8 },
    };
    return {
      layout: {
        paper_bgcolor: "rgba(0,0,0,0)",
        plot_bgcolor: "rgba(0,0,0,0)",
        font: { color: text, family: style.fontFamily, size: 13 },
        xaxis: axis,
        yaxis: axis,
        hoverlabel: { align: "left", bgcolor: surface, bordercolor: line, font: { color: text } },
        annotationdefaults: { font: { size: 13 } },
        sliderdefaults: { bgcolor: surface, bordercolor: line, font: { color: text } },
        updatemenudefaults: { bgcolor: surface, bordercolor: line, font: { color: text } },
      },
    };
  };

  /* 8-bit codes back to rows of numbers: see book/_ext/plotly_pages.py. */
  const unpack = (trace, step) => {
    if (!trace.z?.codes) return;
    const bytes = Uint8Array.from(atob(trace.z.codes), (c) => c.charCodeAt(0));
    const numbers = Array.from(new Int8Array(bytes.buffer), (code) => (code === -128 ? null : code * step));
    const { columns } = trace.z;
    trace.z = Array.from({ length: numbers.length / columns }, (_, row) =>
      numbers.slice(row * columns, (row + 1) * columns));
  };

  const read = (box) => {
    const spec = JSON.parse(box.querySelector("script").textContent);
    for (const trace of [...spec.data, ...(spec.frames ?? []).flatMap((frame) => frame.data)]) {
      unpack(trace, spec.scale);
    }
    return spec;
  };

  /* The figure's layout for this page, this theme and this width. */
  const fit = (given, width) => {
    const layout = structuredClone(given);
    const room = layout.meta.slider_room ?? 0; // our slider stands below the plot, not in it
    layout.height -= room;
    layout.margin.b -= room;
    layout.template = template();
    layout.width = Math.min(layout.width ?? Infinity, width);
    layout.dragmode = false; // a finger on the plot scrolls the page
    delete layout.sliders;
    delete layout.updatemenus;
    if (layout.coloraxis && isDark()) {
      const colours = layout.coloraxis.cmin < 0 ? DARK_SCALE : DARK_SCALE.slice(2);
      layout.coloraxis.colorscale = colours.map((colour, place) => [place / (colours.length - 1), colour]);
    }
    if (NARROW.matches) narrow(layout, width);
    return layout;
  };

  /* On a phone: panels on end, legend and colour bar below, slim margins. */
  const narrow = (layout, width) => {
    const panels = Object.keys(layout).filter((key) => /^xaxis\d*$/.test(key)).length;
    const titled = layout.annotations?.some((title) => title.text);
    const left = layout.yaxis.showticklabels === false ? 8 : 44;
    Object.assign(layout.margin, { l: left, r: 8, t: titled ? 28 : 10 });
    layout.width = width;
    let plot = layout.height - layout.margin.t - layout.margin.b;
    if (panels > 1) {
      const { height, gap } = layout.xaxis.showticklabels === false ? STACKED_BARE : STACKED;
      plot = panels * height + (panels - 1) * gap;
      layout.height = plot + layout.margin.t + layout.margin.b;
      for (let panel = 0; panel < panels; panel++) {
        const top = 1 - (panel * (height + gap)) / plot;
        const number = panel ? panel + 1 : "";
        const [across, down] = [layout[`xaxis${number}`], layout[`yaxis${number}`]];
        across.domain = [0, 1];
        down.domain = [top - height / plot, top];
        down.title ??= layout.yaxis.title;
        Object.assign(layout.annotations[panel], { x: 0.5, y: top });
      }
    }
    // Under the plot, or under its ticks and the axis's title.
    const below = (layout.xaxis.showticklabels === false ? -14 : -64) / plot;
    layout.legend = { orientation: "h", x: 0, y: below, yanchor: "top" };
    if (layout.coloraxis) {
      Object.assign(layout.coloraxis.colorbar, { orientation: "h", x: 0.5, y: below, yanchor: "top" });
    }
  };

  /* The traces as the frame of one stop shows them. */
  const at = (spec, stop) => {
    const traces = [...spec.data];
    const name = spec.layout.sliders?.[0].steps[stop].args[0][0];
    const frame = spec.frames?.find((one) => one.name === name);
    frame?.traces.forEach((index, place) => {
      traces[index] = { ...traces[index], ...frame.data[place] };
    });
    return traces;
  };

  const element = (name, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  };

  /* Slider and play button; `show` draws a stop. */
  const controls = (spec, show) => {
    const { active, steps, currentvalue } = spec.layout.sliders[0];
    const name = currentvalue.prefix.replace(/[:=\s]*$/, "");
    const output = element("output", { ariaHidden: "true" });
    const range = element("input", { type: "range", min: 0, max: steps.length - 1, step: 1, value: active });
    const play = element("button", { type: "button", className: "rove-play" });

    let timer;
    const set = (stop) => {
      range.value = stop;
      output.textContent = steps[stop].label;
      range.setAttribute("aria-valuetext", steps[stop].label);
      show(stop);
    };
    const pause = () => {
      clearInterval(timer);
      timer = undefined;
      play.classList.remove("playing");
      play.setAttribute("aria-label", `Play: ${name}`);
    };
    const forward = () => {
      set((Number(range.value) + 1) % steps.length);
      if (Number(range.value) === steps.length - 1) pause();
    };
    play.addEventListener("click", () => {
      if (timer) return pause();
      // Jumps from stop to stop, slowly where the reader asked for little motion.
      timer = setInterval(forward, CALM.matches ? 1000 : Math.max(100, 3000 / steps.length));
      play.classList.add("playing");
      play.setAttribute("aria-label", `Pause: ${name}`);
      forward();
    });
    range.addEventListener("input", () => {
      pause();
      set(Number(range.value));
    });
    pause();
    set(active);
    const ends = [steps[0].label, steps.at(-1).label].map((label) => element("span", { textContent: label }));
    const label = element("label", {}, element("span", {}, `${name}: `, output), range);
    return element("div", { className: "rove-controls" }, play,
      element("div", {}, label, element("div", { className: "rove-ends", ariaHidden: "true" }, ...ends)));
  };

  const draw = async (box) => {
    if (box.dataset.state) return;
    box.dataset.state = "loading";
    try {
      const Plotly = await load();
      const spec = read(box);
      // The words of aria-label stand for the picture; its many small texts would only be noise.
      const plot = element("div", { className: "rove-canvas", ariaHidden: "true" });
      let stop = spec.layout.sliders?.[0].active ?? 0;
      let due = false;
      let width = box.clientWidth;
      const config = { displayModeBar: false, scrollZoom: false, doubleClick: false };
      const render = (how) => how(plot, at(spec, stop), fit(spec.layout, width), config);
      box.append(plot);
      await render(Plotly.newPlot);
      box.style.minHeight = "";
      let resizing;
      new ResizeObserver(() => {
        clearTimeout(resizing);
        resizing = setTimeout(() => {
          if (box.clientWidth === width || !box.clientWidth) return;
          width = box.clientWidth;
          render(Plotly.newPlot); // `react` would keep margins and colour bars of the old width
        }, 100);
      }).observe(box);
      if (spec.frames?.length) {
        box.append(controls(spec, (next) => {
          if (next === stop) return;
          stop = next;
          if (due) return; // at most one drawing for each frame of the screen
          due = true;
          requestAnimationFrame(() => {
            due = false;
            render(Plotly.react);
          });
        }));
      }
      box.addEventListener("rove-redraw", () => render(Plotly.react));
      box.dataset.state = "drawn";
    } catch (error) {
      box.dataset.state = "failed";
      box.append(element("p", { textContent: `This figure could not be drawn. It shows: ${box.ariaLabel}` }));
      console.error(error);
    }
  };

  const start = () => {
    const boxes = [...document.querySelectorAll(".rove-plot")];
    if (!boxes.length) return;
    const watcher = new IntersectionObserver((entries) => {
      for (const { isIntersecting, target } of entries) if (isIntersecting) draw(target);
    }, { rootMargin: "800px" });
    boxes.forEach((box) => watcher.observe(box));

    // The rest in the page's idle time, so that nothing is missing on paper.
    const whenIdle = window.requestIdleCallback ?? ((act) => setTimeout(act, 200));
    const drawNext = async () => {
      const box = boxes.find(({ dataset }) => !dataset.state);
      if (!box) return;
      await draw(box);
      whenIdle(drawNext);
    };
    addEventListener("load", () => whenIdle(drawNext));
    addEventListener("beforeprint", () => boxes.forEach(draw));

    new MutationObserver(() => boxes.forEach((box) => box.dispatchEvent(new Event("rove-redraw"))))
      .observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  };

  if (document.readyState === "loading") addEventListener("DOMContentLoaded", start);
  else start();
})();
