"use strict";
(() => {
  const plan = JSON.parse(document.getElementById("data").textContent);
  const MODES = Object.keys(plan.policy);
  const MAX_COLUMNS = 400, MAX_ROWS = 200;
  let mode = MODES.includes(plan.update_mode) ? plan.update_mode : MODES[0];

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
  const svg = (tag, attributes = {}, text) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    if (text != null) node.textContent = text;
    return node;
  };
  const bytes = (size) => {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = 0;
    while (size >= 1024 && unit < units.length - 1) { size /= 1024; unit++; }
    return `${Number(size.toFixed(1))} ${units[unit]}`;
  };
  const share = (part, whole) => {
    if (!whole) return "0 of 0";
    let percent = Math.round(100 * part / whole);
    if (part > 0 && part < whole) percent = Math.min(Math.max(percent, 1), 99);
    return `${part} of ${whole} (${percent} %)`;
  };
  const label = (row) => row.label;
  const flag = (value) => Array.isArray(value) ? value.join(",") : typeof value === "object" ? JSON.stringify(value) : String(value);

  // Outputs that are no argument's memory: what moves if only the outputs move.
  const persistent = (name) => new Set(plan.policy[name].persistent);
  const moving = (name) => {
    const fixed = persistent(name);
    return new Set(plan.allocations.filter((row) => row.kind === "output" && !fixed.has(row.index)).map((row) => row.index));
  };
  const updated = (command, moved) =>
    command.always || command.reads.some((index) => moved.has(index)) || command.writes.some((index) => moved.has(index));

  function header() {
    const chip = (name, value) => el("span", { class: "chip" }, `${name} `, el("b", {}, String(value)));
    const versions = Object.entries(plan.versions).map(([name, version]) => chip(name, version));
    at("top").append(
      el("div", {}, el("h1", {}, plan.module), el("div", { class: "chips" }, chip("target", plan.gpu === plan.target ? plan.target : `${plan.target} (${plan.gpu})`),
        chip("devices", plan.devices), ...versions, chip("update mode", plan.update_mode || "unknown"),
        chip("flags changed", Object.keys(plan.xla_flags).length))),
      el("button", { id: "theme", type: "button", title: "light or dark", onclick: () => {
        const dark = getComputedStyle(document.documentElement).getPropertyValue("--bg").trim() === "#12161c";
        document.documentElement.dataset.theme = dark ? "light" : "dark";
      } }, "◐ theme"));
  }

  function cards() {
    const summary = plan.summary[mode], total = plan.commands.length;
    const card = (number, text) => el("div", { class: "card" }, el("div", { class: "n" }, number), el("div", { class: "l" }, text));
    at("cards").replaceChildren(
      card(String(plan.command_buffers.length), "command buffers"),
      card(String(total), "commands in them"),
      card(String(plan.left_out.length), `of ${plan.thunks.length} thunks run outside`),
      card(summary.commands ? `${Math.round(100 * summary.share_if_outputs_move)} %` : "–", `of commands updated each step under ${mode} if only the outputs move`),
      card(bytes(summary.reserved_bytes_at_most), `of addresses reserved under ${mode}, at most`));
  }

  function alerts() {
    const rows = new Map(plan.allocations.map((row) => [row.index, row]));
    for (const warning of plan.warnings) at("alerts").append(el("div", { class: "alert bad" }, el("b", {}, "Warning: "), warning));
    for (const trap of plan.traps) {
      const row = rows.get(trap.allocation);
      at("alerts").append(el("div", { class: "alert" }, el("b", {}, `Scratch in a result: `), el("code", {}, label(row)),
        ` (allocation ${row.index}, ${bytes(row.size)}) is also scratch: ${share(trap.commands, trap.of)} commands touch it. ` +
        "If the result lies at a new address each step, all of them are updated, in every mode. Donate an argument of the same shape, or release the result before the next call."));
    }
  }

  const tip = at("tip");
  const explain = (node, text) => {
    node.addEventListener("mousemove", (event) => {
      tip.textContent = text(); tip.hidden = false;
      tip.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
      tip.style.top = `${Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8)}px`;
    });
    node.addEventListener("mouseleave", () => { tip.hidden = true; });
  };

  function picture() {
    const commands = plan.commands.slice(0, MAX_COLUMNS);
    if (!commands.length) { at("picture").replaceChildren(el("p", { class: "hint", style: "padding:12px 16px;margin:0" }, "No command buffer: every thunk runs on its own.")); return; }
    const all = plan.allocations.filter((row) => row.commands).sort((a, b) => b.commands - a.commands || a.index - b.index);
    const rows = all.slice(0, MAX_ROWS), moved = moving(mode);
    const cell = commands.length > 150 ? 9 : 15, height = 17, left = 366, top = 26;
    const gaps = []; let x = left;
    commands.forEach((command, i) => { if (i && command.buffer !== commands[i - 1].buffer) x += 10; gaps.push(x); x += cell; });
    const width = x + 12, tall = top + rows.length * height + 8;
    const root = svg("svg", { width, height: tall, viewBox: `0 0 ${width} ${tall}`, role: "img", "aria-label": "commands and the allocations they read and write" });
    commands.forEach((command, i) => {
      if (updated(command, moved)) root.append(svg("rect", { x: gaps[i], y: top, width: cell, height: rows.length * height, style: "fill:var(--mark)" }));
      if (!i || command.buffer !== commands[i - 1].buffer) {
        const many = plan.commands.filter((other) => other.buffer === command.buffer).length;
        root.append(svg("text", { x: gaps[i], y: 16, class: "soft" }, many * cell > 150 ? `${plan.command_buffers[command.buffer].name}, ${many} commands` : `#${command.id}`));
      }
    });
    const position = new Map(rows.map((row, i) => [row.index, i]));
    rows.forEach((row, i) => {
      const y = top + i * height, role = row.modes[mode].class, name = label(row);
      root.append(svg("line", { x1: 8, x2: width - 8, y1: y + height, y2: y + height, style: "stroke:var(--line);stroke-width:.6" }));
      root.append(svg("rect", { x: 10, y: y + 4, width: 9, height: 9, rx: 4.5, style: `fill:var(--${role})` }));
      // The end of a path tells more than its beginning.
      const short = name.length > 36 ? `${name.slice(0, 8)}…${name.slice(-27)}` : name;
      const text = svg("text", { x: 26, y: y + 12.5 }, short);
      explain(text, () => `${name}\nallocation ${row.index}, ${row.kind}, ${bytes(row.size)}\n${mode}: ${role} (${row.modes[mode].reason})`);
      root.append(text, svg("text", { x: left - 12, y: y + 12.5, class: "soft", "text-anchor": "end" }, bytes(row.size)));
    });
    commands.forEach((command, i) => {
      const reads = new Set(command.reads), writes = new Set(command.writes);
      for (const index of new Set([...reads, ...writes])) {
        const j = position.get(index);
        if (j === undefined) continue;
        const how = reads.has(index) ? (writes.has(index) ? "both" : "read") : "write";
        const mark = svg("rect", { x: gaps[i] + 1, y: top + j * height + 2, width: cell - 2, height: height - 4, rx: 2, style: `fill:var(--${how})` });
        explain(mark, () => `${command.name} (thunk ${command.id}, ${command.kind})\n${how === "both" ? "reads and writes" : how === "read" ? "reads" : "writes"} ${label(rows[j])}`);
        root.append(mark);
      }
    });
    const hidden = [];
    if (plan.commands.length > commands.length) hidden.push(`the first ${commands.length} of ${plan.commands.length} commands`);
    if (all.length > rows.length) hidden.push(`the ${rows.length} most used of ${all.length} allocations`);
    at("picture").replaceChildren(root, ...(hidden.length ? [el("p", { class: "hint", style: "padding:0 16px" }, `Shown: ${hidden.join(" and ")}.`)] : []));
  }

  function legend() {
    const entry = (colour, text) => el("span", {}, el("i", { style: `background:var(--${colour})` }), text);
    at("legend").append(entry("read", "read"), entry("write", "written"), entry("both", "both"), entry("remapped", "constant or remapped"),
      entry("candidate", "candidate"), entry("dynamic", "dynamic"), entry("mark", "updated if outputs move"));
  }

  function modeButtons() {
    at("modes").replaceChildren(...MODES.map((name) => el("button", { type: "button", "aria-pressed": String(name === mode), onclick: () => {
      mode = name; modeButtons(); cards(); picture();
    } }, name)));
  }

  function table(host, columns, rows, initial) {
    let order = initial ?? null;
    const draw = () => {
      const shown = [...rows()];
      if (order) {
        const key = columns[order.column].key;
        shown.sort((a, b) => { const p = key(a), q = key(b); return (p < q ? -1 : p > q ? 1 : 0) * order.sign; });
      }
      const head = columns.map((column, i) => el("th", {
        class: `${column.num ? "num " : ""}${column.key ? "sortable" : ""}`, tabindex: column.key ? 0 : null, scope: "col",
        "aria-sort": order && order.column === i ? (order.sign > 0 ? "ascending" : "descending") : null,
        ...(column.key ? { onclick: () => sort(i), onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); sort(i); } } } : {}),
      }, column.title));
      host.replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...shown.map((row) =>
        el("tr", { class: row.rowClass }, ...columns.map((column) => el("td", { class: column.num ? "num" : column.cls }, column.show(row))))))));
      return shown.length;
    };
    const sort = (i) => { order = order && order.column === i ? { column: i, sign: -order.sign } : { column: i, sign: columns[i].num ? -1 : 1 }; draw(); };
    return draw;
  }

  function summary() {
    const rows = MODES.map((name) => ({ name, ...plan.summary[name], ...plan.policy[name], rowClass: name === plan.update_mode ? "current" : null }));
    table(at("summary"), [
      { title: "mode", show: (row) => row.name },
      { title: "constants", num: true, show: (row) => String(row.constants.length) },
      { title: "persistent", num: true, show: (row) => String(row.persistent.length) },
      { title: "candidates", num: true, show: (row) => String(row.candidates.length) },
      { title: "updated if only the outputs move", num: true, show: (row) => share(row.updated_if_outputs_move, row.commands) },
      { title: "updated at worst", num: true, show: (row) => share(row.updated_at_worst, row.commands) },
      { title: "reserved addresses", num: true, show: (row) => row.candidates.length ? `${bytes(row.reserved_bytes)} to ${bytes(row.reserved_bytes_at_most)}` : bytes(row.reserved_bytes) },
      { title: "of it rounding", num: true, show: (row) => bytes(row.padding_bytes) },
    ], () => rows)();
  }

  function allocations() {
    const text = (row) => [row.index, row.kind, label(row), ...row.instructions, ...row.values, ...MODES.map((name) => row.modes[name].class)].join(" ").toLowerCase();
    const searchable = plan.allocations.map((row) => [text(row), row]);
    const matching = () => { const words = at("filter").value.toLowerCase().split(/\s+/).filter(Boolean); return searchable.filter(([all]) => words.every((word) => all.includes(word))).map(([, row]) => row); };
    const role = (name) => ({ title: name, key: (row) => row.modes[name].class, show: (row) => el("span", { class: `role ${row.modes[name].class}` }, row.modes[name].class) });
    const draw = table(at("allocations"), [
      { title: "#", num: true, key: (row) => row.index, show: (row) => String(row.index) },
      { title: "size", num: true, key: (row) => row.size, show: (row) => bytes(row.size) },
      { title: "kind", key: (row) => row.kind + row.donated, show: (row) => row.kind + (row.donated ? " (donated)" : "") },
      { title: "path or values", key: label, show: (row) => el("span", { class: "path" }, label(row)) },
      { title: "commands", num: true, key: (row) => row.commands, show: (row) => String(row.commands || "") },
      ...MODES.map(role),
      { title: "reason", key: (row) => row.modes[mode].reason, cls: "soft", show: (row) => [...new Set(MODES.map((name) => row.modes[name].reason))].join("; ") },
      { title: "used by", cls: "soft", show: (row) => el("span", { class: "path" }, row.instructions.slice(0, 4).join(", ") + (row.instructions.length > 4 ? `, … ${row.instructions.length}` : "")) },
    ], matching, { column: 4, sign: -1 });
    const refresh = () => { at("shown").textContent = `${draw()} of ${plan.allocations.length}`; };
    at("filter").addEventListener("input", refresh);
    refresh();
  }

  function program() {
    const inside = new Map(), leftOut = new Map(plan.left_out.map((entry) => [entry.id, entry]));
    plan.command_buffers.forEach((buffer) => buffer.commands.forEach((id, i) => inside.set(id, { buffer, first: i === 0 })));
    const depth = new Map(), rows = [];
    for (const thunk of plan.thunks) {
      const level = thunk.parent == null ? 0 : (depth.get(thunk.parent) ?? 0) + 1;
      depth.set(thunk.id, level);
      const home = inside.get(thunk.id);
      if (home && home.first) rows.push({ rowClass: "buffer", head: `${home.buffer.name}: ${home.buffer.commands.length} thunks, ${home.buffer.allocations.length} allocations`, level });
      rows.push({ thunk, level, home, out: leftOut.get(thunk.id) });
    }
    table(at("program"), [
      { title: "thunk", num: true, show: (row) => row.thunk ? String(row.thunk.id) : "" },
      { title: "kind", show: (row) => el("span", { style: `padding-left:${row.level * 18}px` }, row.thunk ? row.thunk.kind : "command buffer") },
      { title: "HLO instruction", show: (row) => el("code", {}, row.thunk ? row.thunk.name : row.head) },
      { title: "where", show: (row) => row.out ? el("span", { class: "out" }, `outside: ${row.out.detail}`) : row.thunk ? (row.home ? "in the command buffer" : el("span", { class: "soft" }, "with its parent")) : "" },
    ], () => rows)();
  }

  function notes() {
    const flags = Object.entries(plan.xla_flags).map(([name, value]) => el("li", {}, el("code", {}, `--${name}=${flag(value)}`)));
    at("notes").append(el("p", { class: "hint" }, flags.length ? "Flags that differ from their default:" : "All flags are at their default."),
      el("ul", { class: "notes" }, ...flags), el("ul", { class: "notes" }, ...plan.notes.map((note) => el("li", {}, note))));
  }

  header(); cards(); alerts(); legend(); modeButtons(); picture(); summary(); allocations(); program(); notes();
})();
