"use strict";
(() => {
  const run = JSON.parse(document.getElementById("data").textContent);
  const ROW = 16, CHART = 40;
  const CELLS = {
    c: ["constant", "#8a94a3"], p: ["profiled", "#d9b23d"], P: ["profiled, its address changed", "#d96f1f"],
    r: ["at its reservation address", "#35a06b"], R: ["at its reservation address, other memory mapped there first", "#a855b5"],
    "=": ["compared, address as before", "#7da7dd"], u: ["compared, address changed: its commands are updated", "#d64a41"],
    "-": ["the program did not run", "#00000000"],
  };
  const at = (id) => document.getElementById(id);
  // Every text goes through textContent: nothing of the program is read as markup.
  const el = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (value !== false && value != null) node.setAttribute(name, value);
    }
    node.append(...children.filter((child) => child != null));
    return node;
  };
  const number = (value) => value.toLocaleString("en");
  const label = (f) => f.signature ? `${f.function} (signature ${f.signature})` : f.function;
  const steady = (f) => {
    const first = f.executions.findIndex((each) => each.recorded);
    return f.executions.slice(first + 1).filter((each) => each.submitted);
  };
  const updated = (f) => {
    const found = steady(f);
    return found.length ? found.reduce((sum, each) => sum + each.updated, 0) / found.length : null;
  };
  const rounded = (value) => value == null ? "" : number(Number(value.toFixed(1)));

  function header() {
    const chip = (name, value) => el("span", { class: "chip" }, `${name} `, el("b", {}, String(value)));
    const first = run.processes[0] || { command: [], versions: {}, devices: [] };
    const chips = Object.entries(first.versions).map(([name, version]) => chip(name, version));
    for (const each of run.processes) {
      const name = each.count > 1 ? `process ${each.index} of ${each.count} on ${each.host}` : each.host;
      chips.push(chip(name, `${each.outcome}${each.detail ? ` (${each.detail})` : ""}, ${(each.took_us / 1e6).toFixed(1)} s, ${each.devices.length} ${each.platform}`));
    }
    at("top").append(
      el("div", {}, el("h1", {}, first.command.join(" ")), el("div", { class: "chips" }, ...chips)),
      el("button", { id: "theme", type: "button", title: "light or dark", onclick: () => {
        const dark = getComputedStyle(document.documentElement).getPropertyValue("--bg").trim() === "#12161c";
        document.documentElement.dataset.theme = dark ? "light" : "dark";
      } }, "◐ theme"));
    const notes = new Set(run.processes.flatMap((each) => each.notes));
    for (const note of notes) at("notes").append(el("div", { class: "alert" }, note));
  }

  function table(headings, rows, attributes = () => ({})) {
    const head = el("tr", {}, ...headings.map(([text, kind]) => el("th", { class: kind }, text)));
    const body = rows.map((cells, n) => el("tr", attributes(n), ...cells.map((cell, column) => {
      const kind = headings[column][1];
      return cell instanceof Node ? el("td", { class: kind }, cell) : el("td", { class: kind }, cell == null ? "" : String(cell));
    })));
    return el("table", {}, el("thead", {}, head), el("tbody", {}, ...body));
  }

  const words = (f) => `${label(f)} process ${f.process} device ${f.device} ${f.phase} ${f.effective}`.toLowerCase();

  function functions() {
    const filter = at("filter").value.toLowerCase();
    const found = run.functions.filter((f) => words(f).includes(filter));
    at("shown").textContent = `${found.length} of ${run.functions.length}`;
    const persistent = (f) => f.persistent == null ? "unknown" : `${f.allocations.filter((row) => f.persistent.includes(row.index)).length} of ${f.allocations.length}`;
    const rows = found.map((f) => [label(f), f.process, f.device, f.target, f.effective, f.phase, number(f.calls), persistent(f),
      updated(f) == null ? "" : `${rounded(updated(f))} of ${f.commands}`, f.hazards.length, f.advice.length]);
    const headings = [["function", "path"], ["process", "num"], ["device", "num"], ["target", ""], ["mode", ""], ["phase", ""], ["executions", "num"],
      ["persistent", "num"], ["commands updated per step", "num"], ["hazards", "num"], ["advice", "num"]];
    at("functions").replaceChildren(table(headings, rows, (n) => ({
      tabindex: 0, "aria-selected": found[n] === chosen ? "true" : "false",
      onclick: () => choose(found[n]), onkeydown: (event) => { if (event.key === "Enter") choose(found[n]); },
    })));
  }

  function alerts(f) {
    const kinds = f.hazards.map((each) => el("div", { class: "alert bad" }, el("b", {}, `${each.kind}: `), each.text));
    const advice = f.advice.map((each) => {
      const more = each.others.length ? ` and ${each.others.length} more` : "";
      const share = f.commands && each.commands ? ` [${each.commands} of ${f.commands} commands]` : "";
      return el("div", { class: "alert good", title: each.others.join(", ") },
        el("b", {}, `${each.action} `), el("code", {}, each.path + more), `: ${each.text}${share}`);
    });
    return [...kinds, ...advice];
  }

  function timeline(f) {
    const rows = f.allocations.filter((row) => row.cells);
    const count = f.executions.length;
    if (!count) return null;
    const width = Math.max(3, Math.min(16, Math.floor(1100 / count)));
    const height = CHART + ROW * rows.length;
    const scale = Math.min(window.devicePixelRatio || 1, 30000 / (width * count));
    const canvas = el("canvas", { width: Math.ceil(width * count * scale), height: Math.ceil(height * scale), role: "img",
      "aria-label": "allocations by executions" });
    canvas.style.width = `${width * count}px`;
    canvas.style.height = `${height}px`;
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    const most = Math.max(1, ...f.executions.map((each) => each.updated + each.skipped + each.recorded));
    f.executions.forEach((each, n) => {
      let top = CHART;
      const bar = (value, colour) => {
        const size = value / most * (CHART - 6);
        pen.fillStyle = colour;
        pen.fillRect(n * width, top - size, Math.max(width - 1, 1), size);
        top -= size;
      };
      bar(each.skipped, "#7da7dd");
      bar(each.updated, "#d64a41");
      bar(each.recorded, "#35a06b");
      if (each.error) { pen.fillStyle = "#b3261e"; pen.fillRect(n * width, 0, Math.max(width - 1, 1), CHART); }
    });
    rows.forEach((row, line) => {
      for (let n = 0; n < row.cells.length; n++) {
        pen.fillStyle = (CELLS[row.cells[n]] || CELLS["-"])[1];
        pen.fillRect(n * width, CHART + line * ROW + 1, Math.max(width - 1, 1), ROW - 2);
      }
    });
    canvas.addEventListener("mousemove", (event) => {
      const n = Math.floor(event.offsetX / width), line = Math.floor((event.offsetY - CHART) / ROW);
      const each = f.executions[n], row = rows[line];
      if (!each) return hide();
      const parts = [`execution ${f.first + n}: ${each.recorded} recorded, ${each.updated} updated, ${each.skipped} skipped`];
      if (each.fallbacks) parts.push(`${each.fallbacks} command buffers as plain thunks`);
      if (each.transition) parts.push(`profile decided: ${each.transition}`);
      if (each.took_us >= 0) parts.push(`${number(Math.round(each.took_us))} µs on the host`);
      if (each.error) parts.push(each.error);
      if (row) parts.unshift(`${row.path || row.index}: ${(CELLS[row.cells[n]] || ["?"])[0]}`);
      show(parts.join("\n"), event);
    });
    canvas.addEventListener("mouseleave", hide);
    const names = el("div", { class: "names" }, el("div", { class: "fact" }, "commands"), ...rows.map((row) =>
      el("div", { title: row.path, class: `state-${row.state}` }, row.path || `allocation ${row.index}`)));
    const letters = new Set(rows.flatMap((row) => [...row.cells]));
    const legend = Object.entries(CELLS).filter(([letter]) => letters.has(letter)).map(([, [text, colour]]) => {
      const box = el("i", {});
      box.style.background = colour;
      return el("span", {}, box, text);
    });
    return el("div", {}, el("div", { class: "toolbar legend" }, ...legend), el("div", { id: "timeline", class: "scroll" }, names, canvas));
  }

  function show(text, event) {
    const tip = at("tip");
    tip.textContent = text;
    tip.hidden = false;
    tip.style.left = `${Math.min(event.clientX + 14, innerWidth - 440)}px`;
    tip.style.top = `${event.clientY + 14}px`;
  }
  const hide = () => { at("tip").hidden = true; };

  function allocations(f) {
    const use = (row) => {
      if (!row.use) return "";
      const { calls, host, kept, fed_back: fed, donated } = row.use;
      const parts = [];
      if (host) parts.push(`host value in ${host} of ${calls}`);
      if (kept) parts.push(`same array in ${kept} of ${calls}`);
      if (fed) parts.push(`a result of the call before in ${fed} of ${calls}`);
      if (donated) parts.push("donated");
      return parts.join(", ");
    };
    const rows = f.allocations.map((row) => [row.index, row.path, number(row.size), row.commands || "", row.compared ? `${row.moves} of ${row.compared}` : "",
      el("span", { class: `state-${row.state}` }, row.state), row.reason, use(row)]);
    return table([["", "num"], ["from", "path"], ["bytes", "num"], ["commands", "num"], ["moved", "num"], ["state", ""], ["because", ""], ["as passed", ""]], rows);
  }

  let chosen = null;
  function choose(f) {
    chosen = f;
    functions();
    const place = f.process || run.processes.length > 1 ? `device ${f.device} of process ${f.process}` : `device ${f.device}`;
    at("chosen").replaceChildren(...[
      el("h2", {}, `${label(f)} on ${place}`),
      el("p", { class: "hint" }, `${f.arguments.join(", ")}`),
      ...alerts(f), el("h2", {}, "Allocations × executions"), timeline(f) || el("p", { class: "hint" }, "No executions were kept."),
      el("h2", {}, "Allocations"), el("div", { class: "scroll" }, allocations(f))].filter(Boolean));
  }

  header();
  at("filter").addEventListener("input", functions);
  const worst = [...run.functions].sort((a, b) => (updated(b) || 0) * b.calls - (updated(a) || 0) * a.calls || b.calls - a.calls);
  if (worst.length) choose(worst[0]); else functions();
})();
