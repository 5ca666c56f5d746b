// A run's packets on a canvas: wheel, pinch or buttons to zoom, drag to move, double click for the whole.
// Draws `window.packetData[NAME]`, which the run's own file sets when it is asked for.
(function () {
  "use strict";
  const COLOURS = { first: "#1668b8", again: "#b3261e", forward: "#5c6875", back: "#b77b1b", drop: "#b3261e" };
  const PANEL = 220, GAP = 34, LEFT = 62, RIGHT = 10, TOP = 22;

  function floats(text) {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    return new Float32Array(bytes.buffer);
  }

  function flags(text) {
    return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  }

  function series(raw) {
    return { title: raw.title, unit: raw.unit, lines: raw.lines.map((line) => ({
      label: line.label, colour: COLOURS[line.colour], marked: COLOURS[line.marked], markedLabel: line.markedLabel,
      x: floats(line.x), y: floats(line.y), flag: flags(line.flag) })) };
  }

  // The first place whose x is not below `at`.
  function lowerBound(x, at) {
    let low = 0, high = x.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (x[middle] < at) low = middle + 1; else high = middle;
    }
    return low;
  }

  function steps(from, to, most) {
    const rough = (to - from) / most, power = Math.pow(10, Math.floor(Math.log10(rough)));
    const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
    const found = [];
    for (let at = Math.ceil(from / step) * step; at <= to; at += step) found.push(at);
    return { found, digits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) };
  }

  function Viewer(element, data) {
    const panels = data.panels.map(series);
    const ends = panels.flatMap((panel) => panel.lines.map((line) => line.x.length ? line.x[line.x.length - 1] : 0));
    const whole = [0, Math.max(0.001, ...ends)];
    let shown = whole.slice();
    const canvas = document.createElement("canvas"), said = document.createElement("p");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", panels.map((panel) => panel.title).join("; "));
    canvas.style.cssText = "width:100%;touch-action:none;cursor:crosshair;display:block";
    said.className = "muted";
    const bar = document.createElement("p");
    for (const [text, name, act] of [["+", "zoom in", () => zoom(0.5)], ["−", "zoom out", () => zoom(2)],
      ["◀", "earlier", () => move(-0.4)], ["▶", "later", () => move(0.4)], ["whole", "whole run", () => set(whole)]]) {
      const button = document.createElement("button");
      button.textContent = text; button.title = name; button.setAttribute("aria-label", name);
      button.onclick = act;
      bar.append(button, " ");
    }
    element.append(bar, canvas, said);

    function set(range) {
      const span = Math.min(Math.max(range[1] - range[0], 1e-5), whole[1] - whole[0]);
      const from = Math.min(Math.max(range[0], whole[0]), whole[1] - span);
      shown = [from, from + span];
      draw();
    }
    function zoom(factor, at) {
      const about = at === undefined ? (shown[0] + shown[1]) / 2 : at;
      set([about - (about - shown[0]) * factor, about + (shown[1] - about) * factor]);
    }
    function move(share) {
      const by = share * (shown[1] - shown[0]);
      set([shown[0] + by, shown[1] + by]);
    }

    function draw() {
      const width = Math.max(300, element.clientWidth), height = panels.length * (PANEL + GAP) + TOP;
      const scale = window.devicePixelRatio || 1;
      if (canvas.width !== Math.round(width * scale)) {
        canvas.width = Math.round(width * scale);
        canvas.height = Math.round(height * scale);
        canvas.style.height = height + "px";
      }
      const pen = canvas.getContext("2d");
      pen.setTransform(scale, 0, 0, scale, 0, 0);
      pen.clearRect(0, 0, width, height);
      pen.font = "12px system-ui, sans-serif";
      let drawn = 0;
      panels.forEach((panel, place) => { drawn += drawPanel(pen, panel, TOP + place * (PANEL + GAP), width); });
      canvas.dataset.from = shown[0]; canvas.dataset.to = shown[1]; canvas.dataset.drawn = drawn;
      said.textContent = shown[0].toFixed(3) + " to " + shown[1].toFixed(3) + " s: " + drawn + " marks.";
    }

    function drawPanel(pen, panel, top, width) {
      const parts = panel.lines.map((line) => [line, lowerBound(line.x, shown[0]), lowerBound(line.x, shown[1] + 1e-9)]);
      let low = Infinity, high = -Infinity, drawn = 0;
      for (const [line, from, to] of parts) {
        for (let i = from; i < to; i++) { const y = line.y[i]; if (y < low) low = y; if (y > high) high = y; }
      }
      if (low > high) { low = 0; high = 1; }
      if (high - low < 1e-9) { low -= 0.5; high += 0.5; }
      const across = (width - LEFT - RIGHT) / (shown[1] - shown[0]), up = PANEL / (high - low);
      pen.fillStyle = "#1d2733"; pen.fillText(panel.title + ", " + panel.unit, LEFT, top - 7);
      pen.strokeStyle = "#e3e8ed"; pen.fillStyle = "#5c6875"; pen.lineWidth = 1;
      const rows = steps(low, high, 5), columns = steps(shown[0], shown[1], Math.max(2, width / 110));
      for (const at of rows.found) {
        const y = top + PANEL - (at - low) * up;
        pen.beginPath(); pen.moveTo(LEFT, y); pen.lineTo(width - RIGHT, y); pen.stroke();
        pen.textAlign = "right"; pen.fillText(at.toFixed(rows.digits), LEFT - 5, y + 4);
      }
      pen.textAlign = "center";
      for (const at of columns.found) {
        const x = LEFT + (at - shown[0]) * across;
        pen.beginPath(); pen.moveTo(x, top); pen.lineTo(x, top + PANEL); pen.stroke();
        pen.fillText(at.toFixed(columns.digits) + " s", x, top + PANEL + 14);
      }
      pen.textAlign = "left";
      for (const [line, from, to] of parts) {
        for (const marked of [0, 1]) {
          pen.fillStyle = marked ? line.marked : line.colour;
          const size = marked ? 3 : 2;
          let lastX = -1, lastY = -1;
          for (let i = from; i < to; i++) {
            if (line.flag[i] !== marked) continue;
            const x = (LEFT + (line.x[i] - shown[0]) * across) | 0, y = (top + PANEL - (line.y[i] - low) * up) | 0;
            if (x === lastX && y === lastY) continue;
            pen.fillRect(x, y, size, size);
            lastX = x; lastY = y; drawn++;
          }
        }
      }
      let legend = width - RIGHT;
      pen.textAlign = "right";
      for (const [line] of parts) {
        for (const [label, colour] of [[line.markedLabel, line.marked], [line.label, line.colour]]) {
          if (!label) continue;
          pen.fillStyle = colour; pen.fillText("■ " + label, legend, top - 7);
          legend -= pen.measureText("■ " + label).width + 12;
        }
      }
      pen.textAlign = "left";
      return drawn;
    }

    const timeAt = (event) => {
      const box = canvas.getBoundingClientRect();
      return shown[0] + (event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT) * (shown[1] - shown[0]);
    };
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      zoom(event.deltaY > 0 ? 1.25 : 0.8, timeAt(event));
    }, { passive: false });
    const fingers = new Map();
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      fingers.set(event.pointerId, event.clientX);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!fingers.has(event.pointerId)) return;
      const before = [...fingers.values()], last = fingers.get(event.pointerId);
      fingers.set(event.pointerId, event.clientX);
      if (fingers.size === 1) {
        move((last - event.clientX) / (canvas.clientWidth - LEFT - RIGHT));
      } else if (fingers.size === 2) {
        const after = [...fingers.values()], apart = Math.abs(after[0] - after[1]);
        if (apart > 0) zoom(Math.abs(before[0] - before[1]) / apart, timeAt(event));
      }
    });
    for (const name of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(name, (event) => fingers.delete(event.pointerId));
    }
    canvas.addEventListener("dblclick", () => set(whole));
    window.addEventListener("resize", draw);
    draw();
  }

  window.packetData = {};
  for (const button of document.querySelectorAll("button[data-packets]")) {
    button.addEventListener("click", () => {
      const name = button.dataset.packets, script = document.createElement("script");
      script.src = name + ".js";
      script.onload = () => {
        button.hidden = true;
        Viewer(button.parentElement, window.packetData[name]);
      };
      script.onerror = () => { button.textContent = "The file " + name + ".js is missing."; };
      document.head.append(script);
    });
  }
})();
